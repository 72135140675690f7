"""The stored formats read as the formats themselves do, and never stand in the way."""

import json
import shutil
import stat
from pathlib import Path

import pytest

from parsers import formatcache
from parsers.formatcache import formats_for_reading
from parsers.lexicon import Lexicon
from parsers.lineformats import load_formats


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def stored(home):
    (file,) = (home / "denpex-agg").glob("formats-*.json")
    return file


def told(formats):
    """All that reading needs of formats."""
    return [
        (
            fmt.id, fmt.title, fmt.url,
            [(p.id, p.pattern, p.starts, p.stamp, p.tags, p.samples, p.origin) for p in fmt.prefixes],
            [
                (m.id, m.role, m.pattern, m.keywords, m.kind, m.layer, m.phase, m.unless, m.ends_only, m.priority)
                for m in fmt.messages
            ],
        )
        for fmt in formats
    ]  # fmt: skip


def shipped():
    return told(load_formats())


def test_the_first_reading_gives_the_formats_and_stores_them(home):
    assert told(formats_for_reading()) == shipped()
    assert stored(home).stat().st_size > 10_000


def test_the_second_reading_gives_the_same_without_reading_the_formats(home, monkeypatch):
    formats_for_reading()
    monkeypatch.setattr(formatcache, "load_formats", lambda: pytest.fail("the formats were read again"))
    again = formats_for_reading()
    assert told(again) == shipped()
    assert Lexicon(again).literals == Lexicon(load_formats()).literals


@pytest.mark.parametrize("content", [
    b"", b"{", b"null", b"3", b"[]", b"{}", b'"text"', b"[1]", b"[{}]", b"\xff\xfe", b"[" * 200_000,
    b'[{"id": "a", "title": "b", "url": "c", "prefixes": [], "messages": [["x"]]}]',
    b'[{"id": "a", "title": "b", "url": "c", "prefixes": [{"id": 1}], "messages": []}]',
    b'[{"id": "a", "title": "b", "url": "c", "prefixes": {}, "messages": null}]',
])  # fmt: skip
def test_a_damaged_store_is_passed_over_and_replaced(home, content):
    formats_for_reading()
    file = stored(home)
    good = file.read_bytes()
    file.write_bytes(content)
    assert told(formats_for_reading()) == shipped()
    assert file.read_bytes() == good


def test_a_store_that_was_cut_off_anywhere_is_passed_over(home):
    formats_for_reading()
    file = stored(home)
    good = file.read_bytes()
    for part in range(1, 10):
        file.write_bytes(good[: len(good) * part // 10])
        assert told(formats_for_reading()) == shipped()


def test_an_unknown_role_in_the_store_is_passed_over(home):
    formats_for_reading()
    file = stored(home)
    content = json.loads(file.read_bytes())
    next(fmt for fmt in content if fmt["messages"])["messages"][0][1] = "no role"
    file.write_text(json.dumps(content))
    assert told(formats_for_reading()) == shipped()


@pytest.mark.parametrize("name", [".", "denpex-agg"])
def test_without_a_writable_folder_the_formats_are_read_each_time(home, name):
    place = home / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("a file stands where the folder should be")
    assert told(formats_for_reading()) == shipped()
    assert told(formats_for_reading()) == shipped()


def test_a_full_disk_leaves_nothing_behind(home, monkeypatch):
    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert told(formats_for_reading()) == shipped()
    assert not [path for path in home.rglob("*") if path.is_file()]


def test_only_the_user_can_read_and_write_the_store(home):
    formats_for_reading()
    assert stat.S_IMODE(stored(home).stat().st_mode) == 0o600
    assert stat.S_IMODE(stored(home).parent.stat().st_mode) == 0o700


def test_without_the_variable_the_home_folder_is_used(home, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(home))
    formats_for_reading()
    assert stored(home / ".cache")


def test_a_changed_format_makes_a_new_store_in_place_of_the_old(home, tmp_path, monkeypatch):
    folder = tmp_path / "formats"
    shutil.copytree(formatcache.FORMATS_DIR, folder)
    monkeypatch.setattr(formatcache, "FORMATS_DIR", folder)
    monkeypatch.setattr(formatcache, "load_formats", lambda: load_formats(folder))
    formats_for_reading()
    before = stored(home)
    (folder / "zz_new.toml").write_text('id = "zz"\ntitle = "new"\nurl = "https://example.org"\n')
    load_formats.cache_clear()
    assert formats_for_reading()[-1].id == "zz"
    assert stored(home) != before
    assert formats_for_reading()[-1].id == "zz"
