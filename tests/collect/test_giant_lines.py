"""A line without an end must not take the memory, nor the turn of other files."""

import tracemalloc

from followed import append, lines

from aggregator.collect.collector import GLANCE, ROUND, TURN


def test_a_giant_line_is_stored_whole_and_read_in_turns(job):
    giant, small = job.logs / "giant.log", job.logs / "small.log"
    append(giant, b"x" * (6 << 20))
    append(small, lines(0, 9))
    job.now += 1
    job.collector.scan(job.now)
    arrived = job.collector.poll(job.now)
    assert max(len(data) for _, data in arrived) <= TURN
    assert lines(0, 9) in [data for _, data in arrived[:2]], "not after the giant, but beside it"
    job.look()
    assert sum(map(len, job.contents())) == (6 << 20) + len(lines(0, 9))


def test_one_call_reads_a_bounded_number_of_bytes_and_says_that_there_is_more(job):
    (job.logs / "sparse.log").touch()
    with (job.logs / "sparse.log").open("r+b") as file:
        file.write(b"begin\n")
        file.truncate(3 * ROUND)
    job.now += 1
    job.collector.scan(job.now)
    read = sum(len(data) for _, data in job.collector.poll(job.now))
    assert ROUND - TURN <= read <= ROUND + TURN + GLANCE
    assert job.collector.busy


def test_the_memory_for_a_giant_line_is_bounded_by_what_waits_for_the_store(job):
    append(job.logs / "giant.log", b"x" * (8 << 20))
    job.collector.scan(job.now)
    tracemalloc.start()
    try:
        while job.collector.poll(job.now):
            job.store.flush()
        assert tracemalloc.get_traced_memory()[1] < 48 << 20
    finally:
        tracemalloc.stop()
