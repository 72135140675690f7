"""How soon the page of `denpex-agg serve` lists a thousand jobs; and its picture for the docs.

python bench/serve.py                              # 1,000 jobs of 8 files
python bench/serve.py --picture docs/serve.png     # of the sample runs
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

SAMPLES = Path(__file__).parent.parent / "sample_runs"
JOBS, FILES, RUNS = 1000, 8, 5
TRACEBACK = """\
[rank2]: Traceback (most recent call last):
[rank2]:   File "/home/me/train.py", line 118, in main
[rank2]:     loss = model(batch).loss
[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.13 GiB.
"""


@contextmanager
def served(root: str, folder: str) -> Iterator[str]:
    """Serves the jobs of a folder to the end of the block; gives the address."""
    command = [sys.executable, "-m", "aggregator", "serve", "--root", root]
    own = os.environ | {"XDG_STATE_HOME": f"{folder}/state"}
    with subprocess.Popen(command, cwd=SAMPLES.parent, stdout=subprocess.PIPE, encoding="utf-8", env=own) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def listed_s(url: str) -> float:
    began = time.perf_counter()
    with urllib.request.urlopen(url) as page:
        page.read()
    return time.perf_counter() - began


def measure(folder: str) -> None:
    for job in range(JOBS):
        place = Path(folder) / "runs" / f"{4000 + job}"
        place.mkdir(parents=True)
        for rank in range(FILES):
            (place / f"rank_{rank}.log").write_text("2026-03-04 11:00:00,000 INFO step 1\n")
    with served(f"{folder}/runs", folder) as url:
        listed_s(url)
        print(f"{JOBS} jobs listed in {statistics.median(listed_s(url) for _ in range(RUNS)):.3f} s")


def take_picture(page: Page, url: str, file: Path) -> None:
    page.goto(url)
    page.fill("#text", TRACEBACK)
    page.click("#judge")
    page.wait_for_url("**/upload/*")
    page.goto(url)
    expect(page.locator(".state:empty")).to_have_count(0, timeout=60_000)
    page.screenshot(path=file, full_page=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", type=Path, help="only take a picture of the page on the sample runs")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if asked.picture is None:
            measure(folder)
            return
        with sync_playwright() as playwright, served(SAMPLES.name, folder) as url:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            take_picture(browser.new_page(viewport={"width": 1180, "height": 1220}), url, asked.picture.absolute())
            browser.close()


if __name__ == "__main__":
    main()
