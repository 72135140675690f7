"""What the documents show is what the program prints."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
BLOCK = re.compile(
    r"(?<=<!-- verdict:begin -->\n```\n)\$ denpex-agg (?P<arguments>.+)\n"
    r"(?P<shown>(?:.*\n)*?)(?=```\n<!-- verdict:end -->)"
)


def printed(arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "aggregator", *arguments.split()],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "100", "NO_COLOR": "1", "PYTHONUTF8": "1"},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    return done.stdout


def test_the_verdict_in_the_readme_is_a_real_one(update_golden):
    text = README.read_text(encoding="utf-8")
    block = BLOCK.search(text)
    assert block is not None
    output = printed(block["arguments"])
    if update_golden:
        shown = f"$ denpex-agg {block['arguments']}\n{output}"
        README.write_text(text[: block.start()] + shown + text[block.end() :], encoding="utf-8")
        return
    assert block["shown"] == output


def test_every_document_that_the_readme_names_exists():
    for target in re.findall(r"\]\(([^)#:]+)\)", README.read_text(encoding="utf-8")):
        assert (ROOT / target).exists(), target
