"""Empty and tiny files, and such as begin all alike."""

import pytest
from followed import append, lines

BANNER = b"torch 2.9.0 | world size 1000 | starting ...\n" * 40


@pytest.mark.parametrize("data", [b"", b"x", b"\n", b"0123456789", b"0123456789\n"])
def test_a_file_is_read_from_its_first_byte(job, data):
    append(job.logs / "rank0.log", data)
    job.look()
    assert job.contents() == ([data] if data else [])
    append(job.logs / "rank0.log", b"more\n")
    job.tick()
    assert job.contents() == [data + b"more\n"]


def test_a_thousand_empty_files_stay_apart(job):
    logs = [job.logs / f"rank{number}.log" for number in range(1000)]
    for log in logs:
        log.touch()
    job.look()
    assert job.contents() == []
    for number, log in enumerate(logs):
        append(log, lines(number, number + 1))
    job.tick(2)
    assert job.named() == {log.name: lines(number, number + 1) for number, log in enumerate(logs)}


@pytest.mark.parametrize("banner", [BANNER[:45], BANNER])
@pytest.mark.parametrize("name", ["rank{}.log", "log.{}", "{}/stdout.log"])
def test_ranks_that_print_the_same_stay_apart(job, banner, name):
    logs = [job.logs / name.format(number) for number in range(8)]
    for log in logs:
        log.parent.mkdir(exist_ok=True)
        append(log, banner)
        job.look(0.25)
    job.settle()
    assert job.contents() == [banner] * 8
    job.restart()
    for number, log in enumerate(logs):
        append(log, lines(number, number + 3))
    job.settle()
    assert job.named() == {str(log.relative_to(job.logs)): banner + lines(n, n + 3) for n, log in enumerate(logs)}


def test_a_new_run_that_prints_the_same_banner_is_another_content(job):
    log = job.logs / "train.log"
    for run in range(3):
        append(log, BANNER[:45])
        job.look()
        append(log, lines(run * 10, run * 10 + 3))
        job.look()
        log.unlink()
    job.settle()
    assert job.contents() == [BANNER[:45] + lines(run * 10, run * 10 + 3) for run in range(3)]
