"""What was made once is taken from the cache while its files are as they were."""

import os

import pytest

from parsers.cachefile import cached


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "made-of").write_text("one")
    return tmp_path / "made-of"


def test_it_is_made_once_and_anew_when_a_file_has_changed(file, tmp_path):
    made = []

    def make():
        made.append(file.read_text())
        return [made[-1]]

    def ask():
        return cached("thing", lambda: [file], make, tuple)

    assert [ask(), ask()] == [("one",), ("one",)]
    file.write_text("two")
    os.utime(file, ns=(1, 1))
    assert [ask(), ask()] == [("two",), ("two",)]
    assert made == ["one", "two"]
    assert len(list((tmp_path / "cache" / "denpex-agg").iterdir())) == 1


def test_what_cannot_be_made_of_the_cache_is_made_of_the_files(file):
    def thaw(value):
        if value["n"] != wanted:
            raise KeyError(value)
        return value["n"]

    wanted = 1
    assert cached("thing", lambda: [file], lambda: {"n": 1}, thaw) == 1
    wanted = 2
    assert cached("thing", lambda: [file], lambda: {"n": 2}, thaw) == 2
    wanted = 4
    with pytest.raises(KeyError):
        cached("thing", lambda: [file], lambda: {"n": 3}, thaw)


def test_two_installations_keep_a_cache_each(file, tmp_path):
    other = tmp_path / "other" / file.name
    other.parent.mkdir()
    other.write_text("other")
    for _ in range(2):
        for path in (file, other):
            assert cached("thing", lambda path=path: [path], path.read_text, str) == path.read_text()
    assert len(list((tmp_path / "cache" / "denpex-agg").iterdir())) == 2


def test_files_that_cannot_be_looked_at_are_made_of_without_a_cache(file, tmp_path):
    assert cached("thing", lambda: [tmp_path / "gone"], lambda: [1], list) == [1]
    assert not (tmp_path / "cache").exists()
