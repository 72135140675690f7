"""The catalogue: each entry against its samples, and what a wrong file says."""

from pathlib import Path

import pytest

from aggregator.catalogue.check import problems
from aggregator.catalogue.entries import Catalogue, CatalogueError, default_catalogue
from aggregator.catalogue.facts import Facts
from aggregator.catalogue.matching import diagnose
from aggregator.catalogue.naming import Naming
from aggregator.pipeline import postmortem
from parsers.lineformats import KINDS

ENTRY = Path(__file__).with_name("site_entry.toml").read_text()
LOG = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/job/train.py", line 9, in step
[rank1]:     loss = model(batch)
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.15 \
GiB of which 1.20 GiB is free. Including non-PyTorch memory, this process has 77.90 GiB memory in use. Of the \
allocated memory 76.00 GiB is allocated by PyTorch, and 900.00 MiB is reserved by PyTorch but unallocated.
"""


def test_each_entry_is_named_for_its_samples_and_not_for_its_siblings():
    assert list(problems(default_catalogue())) == []


def test_every_kind_of_failure_has_an_entry():
    assert [kind for kind in sorted(KINDS - {"unknown"}) if not default_catalogue().of_kind(kind)] == []


@pytest.fixture
def site(tmp_path):
    def write(text=ENTRY, families='site = ["cuda_oom"]\n'):
        (tmp_path / "families.toml").write_text(families)
        (tmp_path / "site.toml").write_text(text)
        return Catalogue([tmp_path])

    return write


def test_entries_of_a_site_stand_beside_the_shipped_ones(site, tmp_path):
    log = tmp_path / "train.log"
    log.write_text(LOG)
    diagnosis = postmortem([str(log)], naming=Naming(site())).first_failure.diagnosis
    assert (diagnosis.entry, diagnosis.root_cause) == ("site-oom", "Our cards are small.")
    assert diagnosis.matched == ("the GPU is full",)
    assert diagnosis.nearest in {entry.id for entry in default_catalogue().all()}


def test_an_entry_of_a_site_replaces_the_shipped_one_of_its_id(site):
    shipped = default_catalogue().of_kind("cuda_oom")[0]
    (entry,) = [
        known for known in site(ENTRY.replace("site-oom", shipped.id)).of_kind("cuda_oom") if known.id == shipped.id
    ]
    assert entry.title == "Out of memory on our cards"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('id = "site-oom"', "", "`id` must be a text"),
        ('"site-oom"', '"Site OOM"', "kebab-case"),
        ('["cuda_oom"]', '["no_such_kind"]', "known kinds"),
        ('layer = "software"', 'layer = "magic"', "`layer` must be one of"),
        ('fact = "oom"', 'fact = "moon"', "unknown fact 'moon'"),
        ('is = "full"', 'matches = "("', "unterminated|missing"),
        (', says = "the GPU is full"', "", "`says` is missing"),
        ("the GPU is full", "the GPU is {}", "`needs` must do without"),
        ("base = 0.9", "base = 9", "from 0 to 1"),
        ("base = 0.9", 'colour = "red"', "unknown: colour"),
        ("[[entry]]", "[[entry]", "train|site.toml"),
        ("[[entry]]", "[[other]]", "no .*entry"),
        ("https://example.org", "javascript:alert(1)", "https"),
    ],
)
def test_a_wrong_entry_is_named_with_what_is_wrong(site, old, new, says):
    with pytest.raises(CatalogueError, match=says):
        site(ENTRY.replace(old, new)).of_kind("cuda_oom")


def test_nothing_is_named_where_nothing_fits():
    assert diagnose(Facts({"kind": ("no_such_kind",)}), default_catalogue()) is None
    assert diagnose(Facts({}), default_catalogue()) is None
