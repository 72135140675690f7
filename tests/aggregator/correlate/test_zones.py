"""Kernel logs in another time zone than the logs of the ranks."""

import pytest
from correlate_jobs import at, brief, failed, hello, identified, lines, oom_kill, say, steps

RESET = "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.4.0.7]:9004"
HOUR = 3600


def job(killed_at):
    """Rank 1 is killed at 41 s, which the kernel stamps by a clock of its own; the others lose their connections."""
    ranks = {f"rank{rank}.log": lines(hello(rank, 4), steps(rank, 1, 40)) for rank in range(4)}
    for rank in (0, 2, 3):
        ranks[f"rank{rank}.log"] += lines(say(43, rank, RESET, "ERROR"))
    return ranks | {"dmesg-node-a.txt": oom_kill(killed_at, 4101)}


@pytest.mark.parametrize("hours", [0, 1, -5, 5.5, 9])
def test_what_a_kernel_tells_in_local_time_is_put_where_it_belongs(judge, hours):
    verdict = judge(job(41 + hours * HOUR))
    assert brief(verdict) == identified(1, "host_oom")
    assert verdict.first_failure.time == judge(job(41)).first_failure.time
    assert verdict.job.ended - verdict.job.started < 60 * 10**9
    moved = [warning for warning in verdict.warnings if "dmesg-node-a.txt" in warning]
    assert [f"{hours:+g} h" in warning for warning in moved] == ([True] if hours else [])


def test_where_the_ranks_own_last_words_are_not_known_the_launchers_word_on_its_end_is_enough(judge):
    text = [hello(rank, 4) for rank in range(4)] + [f"{at(n)} INFO step {n} of 400" for n in range(1, 41)]
    text += [say(43, rank, RESET, "ERROR") for rank in (0, 2, 3)] + [failed(42, -9, 1, 4101)]
    srun = lines("2026-12-01T12:00:44.000 [123.0] error: Detected 1 oom_kill event in StepId=123.0.")
    verdict = judge({"train.log": lines(*text), "slurmd.log": srun, "dmesg-node-a.txt": oom_kill(41 + 2 * HOUR, 4101)})
    assert brief(verdict) == identified(1, "host_oom")
    assert any("dmesg-node-a.txt is +2 h" in warning for warning in verdict.warnings)


@pytest.mark.parametrize("seconds", [41 + 1200, 41 + 2 * HOUR + 900, 41 - 300])
def test_a_time_that_no_zone_explains_stays(judge, seconds):
    assert not any("dmesg" in warning for warning in judge(job(seconds)).warnings)
