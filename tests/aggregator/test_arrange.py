"""A job's files are arranged from what is known of each, whether or not they are still there."""

import pytest

from aggregator.discover import arrange, discover, look, remember
from aggregator.opening import ReadNotes
from parsers.records import SourceKind

TAGGED = b"".join(b"[rank%d]: step 1\n" % rank for rank in (0, 1, 2, 3))


def told(source):
    return source.path, source.index, source.layout, source.rank, source.local_rank, source.host, source.group


def looked(folder, name):
    return look(str(folder / name), name, {}, ReadNotes())


def test_sources_come_in_the_order_of_the_files_with_their_places_as_indexes(tmp_path):
    names = ["log.2", "log.0", "train.log", "train.log.1", "log.1"]
    for name in names:
        (tmp_path / name).write_text("hello\n", encoding="utf-8")
    sources = arrange([looked(tmp_path, name) for name in names])
    assert [source.path for source in sources] == names
    assert sorted(map(told, sources)) == sorted(map(told, discover([str(tmp_path)]).sources))


def test_files_can_be_arranged_again_with_another_beside_them(tmp_path):
    for name in ("log.0", "log.1"):
        (tmp_path / name).write_text("hello\n", encoding="utf-8")
    files = [looked(tmp_path, name) for name in ("log.0", "log.1")]
    assert [source.rank for source in arrange(files[:1])] == [None]
    assert [source.rank for source in arrange(files)] == [0, 1]
    assert [source.rank for source in arrange(files[:1])] == [None]


@pytest.mark.parametrize("gone", [("log.0",), ("log.1",), ("log.0", "log.1")])
def test_a_file_that_is_gone_counts_by_its_bytes_as_it_did(tmp_path, gone):
    files = []
    for name in ("log.0", "log.1"):
        (tmp_path / name).write_bytes(TAGGED)
        files.append(remember(name, TAGGED, size=9, mtime_ns=5) if name in gone else looked(tmp_path, name))
    sources = arrange(files)
    assert [source.rank for source in sources] == [None, None], "each holds the lines of all ranks"
    assert [(s.real, s.size, s.mtime_ns) for s in sources if s.path in gone] == [(None, 9, 5)] * len(gone)


def test_a_tag_at_the_end_of_a_file_that_is_gone_counts():
    files = [remember(f"log.{n}", b"hello\n", b"[rank7]: bye\n", size=9, mtime_ns=None) for n in range(2)]
    assert [source.rank for source in arrange(files)] == [None, None]


def test_what_is_gone_is_of_the_kind_that_its_name_and_bytes_tell():
    assert (
        remember("a/dmesg.txt", b"[   12.345678] NVRM: Xid\n", size=1, mtime_ns=None).source.kind is SourceKind.KERNEL
    )
    assert remember("run.log", "\ufeffhello\n".encode("utf-16-le"), size=1, mtime_ns=None).ends.startswith(b"hello")
    assert remember("model.pt", b"hello\n", size=1, mtime_ns=None) is None
    assert remember("core", bytes(range(256)) * 4, size=1, mtime_ns=None) is None
