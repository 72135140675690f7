"""Files of entries and formats that a site wrote, wrongly or with ill will: one error in words, soon, and no crash."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.catalogue import entries
from aggregator.catalogue.entries import CatalogueError
from aggregator.linear import LinearPattern
from parsers.tomlfile import MAX_BYTES, TomlError, parse_toml

PATIENCE = 20
ENTRY = Path(__file__).with_name("site_entry.toml").read_text()
FORMAT = """\
id = "x"
title = "t"
url = "u"
[[message]]
id = "m"
role = "root"
pattern = 'PATTERN'
keywords = ["a"]
[[message.sample]]
line = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"
"""


def run(*words, given=""):
    return subprocess.run(
        [sys.executable, "-m", "aggregator", *map(str, words)],
        input=given, capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip


def refused(done):
    assert done.returncode == 3, done.stderr
    assert done.stderr.count("error: ") == 1
    assert "Traceback" not in done.stderr
    assert "this is a bug" not in done.stderr
    return done.stderr


@pytest.fixture
def site(tmp_path):
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "families.toml").write_text('site = ["cuda_oom"]\n')
    (folder / "site.toml").write_text(ENTRY)
    return folder


def fifo(path):
    os.mkfifo(path)


def endless(path):
    path.symlink_to("/dev/zero")


def large(path):
    path.touch()
    os.truncate(path, MAX_BYTES + 1)


BAD_FILES = {
    "a FIFO": (fifo, "not a regular file"),
    "an endless device": (endless, "not a regular file"),
    "a folder": (lambda path: path.mkdir(), "Is a directory"),
    "too large": (large, "larger than 2 MiB"),
    "no UTF-8": (lambda path: path.write_bytes(b"a = 1\nb = '\xff'\n"), "not UTF-8"),
    "deep arrays": (lambda path: path.write_text("x = " + "[" * 100_000), "nested too deeply"),
    "deep tables": (lambda path: path.write_text("x = " + "{a=" * 100_000), "nested too deeply"),
    "a deep key": (lambda path: path.write_text("a." * 500_000 + "a = 1"), "a key of more than 100 parts"),
    "a deep head": (lambda path: path.write_text("[" + "'a' . " * 200_000 + "a]"), "a key of more than 100 parts"),
    "a long number": (lambda path: path.write_text("x = " + "9" * 6000), "limit"),
    "a huge number": (lambda path: path.write_text("x = 0x" + "f" * 6000), "too large"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("families.toml", ("catalogue", "check", "SITE")),
        ("samples/site.toml", ("catalogue", "check", "SITE")),
        ("site.toml", ("explain", "segfault", "--catalogue", "SITE")),
        ("site.toml", ("formats", "check", "SITE")),
    ],
)
def test_what_is_no_file_of_ours_is_refused_in_words(kind, name, words, site):
    path = site / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    make, says = BAD_FILES[kind]
    make(path)
    if words[0] == "formats":
        (site / "families.toml").unlink()
    told = refused(run(*(site if word == "SITE" else word for word in words)))
    assert says in told
    assert f"--> {path}" in told


@pytest.mark.parametrize("text", ["x = 1\n" * 2, "[a]\n[a]\n", "a = 2020-02-31\n"])
def test_an_error_of_the_syntax_names_its_line(text):
    with pytest.raises(TomlError):
        parse_toml(text)
    with pytest.raises(TomlError) as caught:
        parse_toml("# one\n# two\nx = = 1\n")
    assert caught.value.line == 3


SLOW = "(a+)+$"


def test_a_pattern_of_a_site_is_matched_in_linear_time(site, tmp_path):
    asked = f"fact = 'text', matches = '{SLOW}'"
    (site / "site.toml").write_text(ENTRY.replace('fact = "oom", is = "full"', asked))
    log = tmp_path / "train.log"
    log.write_text(
        f"[rank1]: Traceback (most recent call last):\n[rank1]: RuntimeError: CUDA out of memory. {'a' * 80}!\n"
    )
    done = run("diagnose", log, "--catalogue", site)
    assert done.returncode == 0, done.stderr
    assert LinearPattern(SLOW).search("a" * 4000 + "!") is None
    assert LinearPattern("(?i)ÄB").search("xäbx")


def test_what_a_linear_engine_cannot_do_is_told(site):
    (site / "site.toml").write_text(ENTRY.replace('"^eval"', '"(?=x)"'))
    told = refused(run("catalogue", "check", site))
    assert "site.toml: entry 1 (site-oom): never 1: '(?=x)'" in told
    assert f"--> {site}/site.toml:1" in told


@pytest.mark.parametrize(("pattern", "says"), [(SLOW, "takes more than 2 s"), ("(?=a)", "invalid perl operator")])
def test_a_pattern_of_a_format_that_takes_for_ever_is_a_problem(pattern, says, tmp_path):
    (tmp_path / "mine.toml").write_text(FORMAT.replace("PATTERN", pattern))
    done = run("formats", "check", tmp_path)
    refused(done)
    assert f"mine.toml [m]: {'' if says.startswith('takes') else 'Invalid'}" in done.stdout
    assert says in done.stdout


def test_ids_that_are_used_twice_and_files_that_are_never_read_are_problems(site):
    (site / "families.toml").write_text('site = ["cuda_oom"]\nmore = ["cuda_oom"]\n')
    (site / "site.toml").write_text(ENTRY + ENTRY.replace("site-oom", "other-oom"))
    (site / "more.toml").write_text(ENTRY)
    (site / "lost.toml").write_text(ENTRY)
    done = run("catalogue", "check", site)
    refused(done)
    assert "more.toml: site-oom: the id is already used in site.toml" in done.stdout
    assert "lost.toml: is never read" in done.stdout


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("files", "{ '../../x' = 'a' }"),
        ("files", "{ '' = 'a' }"),
        ("files", "{ '%s' = 'a' }" % ("n" * 300)),
        ("files", r'{ "a\u0000b" = "a" }'),
        ("files", "{ a = 1 }"),
        ("files", "3"),
        ("log", "3"),
        ("entry", "[]"),
        ("what", "[]"),
        ("is", "3"),
    ],
)
def test_a_wrong_sample_is_told_with_its_number(line, value, site):
    sample = {"entry": "'site-oom'", "what": "'positive'", "log": "'a'"} | {line: value}
    if line == "files":
        del sample["log"]
    (site / "samples").mkdir()
    (site / "samples" / "site.toml").write_text("[[sample]]\n" + "".join(f"{k} = {v}\n" for k, v in sample.items()))
    assert "site.toml: sample 1" in refused(run("catalogue", "check", site))


GOOD = tomllib.loads(ENTRY)["entry"][0]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["full", "oom", "{}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["fact", "says", "is", "x"]), inner),
    max_leaves=6,
)


def places(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def with_value(whole, path, value):
    if not path:
        return value
    copy = dict(whole) if isinstance(whole, dict) else list(whole)
    copy[path[0]] = with_value(whole[path[0]], path[1:], value)
    return copy


@given(place=st.sampled_from(sorted(places(GOOD), key=str)), value=VALUES)
def test_any_value_anywhere_in_an_entry_is_taken_or_refused(place, value):
    try:
        made = entries._entry(with_value(GOOD, place, value), is_ours=False)
    except CatalogueError as error:
        assert len(str(error)) < 1000  # noqa: PT017 - most are right, and raise nothing
        return
    for condition in (*made.needs, *made.never, *made.signs, *made.doubts):
        for fact in ("full", 3, 0.5, True):
            condition._fits(fact)
    assert re.fullmatch(r"[a-z0-9-]+", made.id)
