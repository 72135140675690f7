"""How closely a file is read: where a job has many, the ends of each are short."""

import pytest

from parsers.records import Source, SourceKind
from parsers.skim import close_sizes
from parsers.timestamps import StampContext
from parsers.triage import LogTriage

MANY_FILES = 10_000
QUIET = b"2025-10-03 18:37:02,500 INFO trainer: nothing new\n"
STEP = b"2025-10-03 18:37:02,500 INFO trainer: step %d loss 2.5\n"
FAULT = b"2025-10-03 18:37:03,500 ERROR trainer: CUDA error: an illegal memory access was encountered\n"
RANK_INFO = b"node1:88:91 [3] NCCL INFO comm 0x9 rank 3 nranks 64 cudaDev 3 nvmlDev 3 busId 1b000 - Init COMPLETE\n"


def scanned(data, *, files=MANY_FILES, rank=None):
    source = Source(0, "a.log", None, SourceKind.LOG, rank=rank)
    triage = LogTriage(source, None, StampContext(1_760_000_000 * 10**9), files=files)
    for start in range(0, len(data), 100_000):
        triage.feed(data[start : start + 100_000])
    return triage.finish()


def steps(first, last):
    return b"".join(STEP % number for number in range(first, last))


def test_the_ends_that_are_read_closely_get_shorter_the_more_files_there_are_but_never_vanish():
    for named in (False, True):
        sizes = [close_sizes(files, named=named) for files in (0, 1, 8, 100, 10_000, 1_000_000)]
        assert sizes[0] == sizes[1]
        assert sizes == sorted(sizes, reverse=True)
        assert min(sizes[-1]) >= 1 << 10


def test_who_writes_is_looked_for_in_the_head_where_the_name_of_the_file_does_not_tell():
    assert close_sizes(10_000).head == 4 << 10 > close_sizes(10_000, named=True).head


def test_of_short_files_too_only_the_ends_are_parsed_where_there_are_many():
    data = QUIET * 300
    assert scanned(data, files=1).counts.stamped == 300
    scan = scanned(data)
    assert (scan.counts.lines, scan.counts.stamped < 200) == (300, True)


def test_lines_above_the_tail_are_parsed_where_it_holds_a_fault():
    quiet = QUIET * 5_000
    fault = b"2025-10-03 18:37:03,500 ERROR trainer: CUDA error: an illegal memory access was encountered\n"
    with_fault = scanned(quiet + fault, files=1).counts.stamped - 1
    assert with_fault > scanned(quiet + b"2025-10-03 18:37:03,500 INFO trainer: bye\n", files=1).counts.stamped - 1 + 20


def test_of_a_rank_s_own_file_the_last_steps_are_enough_of_a_quiet_tail():
    data = steps(0, 5_000)
    named, nameless = scanned(data, rank=3), scanned(data)
    assert named.counts.stamped < nameless.counts.stamped - 20
    assert named.signals[-1].fields["step"] == nameless.signals[-1].fields["step"] == "4999"
    assert named.counts.lines == nameless.counts.lines == 5_000


@pytest.mark.parametrize("below", [0, 3, 25, 60])
def test_steps_above_other_lines_at_the_end_are_found_as_far_up_as_in_any_file(below):
    data = steps(0, 5_000) + QUIET * below
    last = [[signal.fields["step"] for signal in scanned(data, rank=rank).signals][-1] for rank in (3, None)]
    assert last[0] == last[1]


@pytest.mark.parametrize("after", range(0, 100, 7))
def test_what_else_the_tail_tells_is_not_passed_over(after):
    data = steps(0, 5_000) + RANK_INFO + steps(5_000, 5_000 + after)
    told = [[s for s in scanned(data, rank=rank).signals if "step" not in s.fields] for rank in (3, None)]
    assert len(told[0]) == len(told[1]) == 1
    assert (told[0][0].line, told[0][0].offset) == (told[1][0].line, told[1][0].offset) == (5_001, len(steps(0, 5_000)))


def test_a_fault_in_the_tail_is_told_with_all_that_is_around_it():
    for after in (0, 10, 40):
        data = steps(0, 5_000) + FAULT + steps(5_000, 5_000 + after)
        assert scanned(data, rank=3).counts.stamped > scanned(steps(0, 5_001 + after), rank=3).counts.stamped + 20
