"""How much is read of files that are together too long, and whose."""

import os

from hypothesis import given
from hypothesis import strategies as st

from aggregator import limits
from aggregator.opening import LocalFile


@given(st.lists(st.integers(0, 10_000), max_size=30), st.integers(1, 50_000))
def test_the_share_keeps_the_sum_and_small_files_are_whole(sizes, total):
    share = limits.fair_share(sizes, total)
    assert sum(min(size, share) for size in sizes) <= total
    if sum(sizes) <= total:
        assert all(size <= share for size in sizes)
    else:
        assert share >= total // len(sizes)


@given(st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"")), max_size=20), st.integers(1, 300))
def test_an_end_is_made_of_whole_lines(tmp_path_factory, lines, limit):
    data = b"".join(line + b"\n" for line in lines)
    path = tmp_path_factory.mktemp("end") / "log"
    path.write_bytes(data)
    file = LocalFile(os.open(path, os.O_RDONLY))
    try:
        end = b"".join(limits.end_of(file, limit, piece=7))
    finally:
        file.close()
    assert data.endswith(end)
    assert len(end) <= limit
    if len(data) <= limit:
        assert end == data
    elif end:
        assert data[-len(end) - 1 : -len(end)] == b"\n"


def test_an_owner_rule_refuses_others_and_second_names(tmp_path):
    path = tmp_path / "log"
    path.touch()
    mine = os.geteuid()
    assert limits.OwnerRule(mine, sole_name=True).refusal(path.stat()) is None
    assert limits.OwnerRule(mine + 1, sole_name=True).refusal(path.stat()) == "not read: it belongs to somebody else"
    (tmp_path / "second").hardlink_to(path)
    assert limits.OwnerRule(mine, sole_name=False).refusal(path.stat()) is None
    assert "hard link" in str(limits.OwnerRule(mine, sole_name=True).refusal(path.stat()))
