"""Bytes of a file that are fed in tiny pieces are dealt with in batches."""

from parsers.unread import Unread


def test_files_that_grow_alike_take_turns():
    """Else the batches of a thousand ranks would all be due in the same moment, in which nothing else is done."""
    unread = [Unread.of(file) for file in range(1000)]
    due = [0] * 200
    for tick in range(200):
        for file in unread:
            if file.add(bytes(250)):
                due[tick] += 1
                file.go_on(0, 0)
    assert max(due) < 100
    assert sum(due) > 1000 * 4
