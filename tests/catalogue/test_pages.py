"""The pages of docs/catalogue/ are those of the entries."""

import importlib.util
from pathlib import Path

import pytest

from aggregator.catalogue.entries import default_catalogue

DOCS = Path(__file__).parents[2] / "docs"
SPEC = importlib.util.spec_from_file_location("make_catalogue", DOCS / "make_catalogue.py")
make_catalogue = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(make_catalogue)


def test_the_pages_are_as_the_script_writes_them():
    written = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "catalogue").glob("*.md")}
    assert written == make_catalogue.pages(), "run `python docs/make_catalogue.py`"


@pytest.mark.parametrize("entry", default_catalogue().all(), ids=lambda entry: entry.id)
def test_a_page_has_all_that_the_engineer_on_call_asks(entry):
    text = (DOCS / "catalogue" / f"{entry.id}.md").read_text(encoding="utf-8")
    for part in ("**Symptom.**", "**Cause.**", "**Fix.**", "**Verify.**", "## Hardware or software", "## Prevention"):
        assert part in text
    assert "{}" not in text
