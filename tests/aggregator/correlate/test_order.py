"""Which of several faults came first, how far clocks allow to tell, and which attempt a fault belongs to."""

import random

import pytest
from correlate_jobs import (
    FULL,
    ILLEGAL,
    KEY,
    OOM,
    RESET,
    at,
    box,
    brief,
    closing,
    failed,
    hello,
    identified,
    lines,
    say,
    signal,
    steps,
    traceback,
)

from aggregator.correlate.clocks import UNKNOWN_NS, ClockModel, HostClock, estimate
from aggregator.correlate.evidence import NS
from aggregator.correlate.identity import Identity
from aggregator.verdict import iso_time
from parsers.records import Role

NAN = "Loss is nan at step 11, stopping training"


def fault(seconds, rank, text=NAN):
    return say(seconds, rank, text, "ERROR")


def job(*faults, world=4, host="node-a"):
    """A file a rank; each fault is time, rank and text."""
    files = {f"rank_{r}.log": lines(hello(r, world, host), steps(r, 1, 5)) for r in range(world)}
    for seconds, rank, text in faults:
        files[f"rank_{rank}.log"] += lines(fault(seconds, rank, text))
    return files


# One clock


def test_the_earlier_of_two_faults_is_the_first(judge):
    verdict = judge(job((9.5, 1, ILLEGAL), (8.2, 3, NAN)))
    assert brief(verdict) == identified(3, "nan_loss")
    (other,) = verdict.first_failure.candidates
    assert (other.rank, other.kind) == (1, "cuda_illegal_access")
    assert "1.3 s later" in other.why_not


def test_ranks_that_failed_of_one_cause_under_the_same_stamp_are_all_named(judge):
    verdict = judge({path: text + traceback(OOM) for path, text in job(world=3).items()})
    assert brief(verdict) == identified((0, 1, 2), "cuda_oom")


def test_ranks_that_failed_of_one_cause_at_once_are_all_named(judge):
    verdict = judge(job(*((9 + rank / 100, rank, OOM) for rank in range(3))))
    assert brief(verdict) == identified((0, 1, 2), "cuda_oom")
    assert any("at about the same time" in reason for reason in verdict.first_failure.reasons)


def test_a_rank_that_failed_of_the_same_cause_later_is_told_to_be_later(judge):
    verdict = judge(job((9.0, 2, OOM), (11.5, 0, OOM)))
    assert brief(verdict) == identified(2, "cuda_oom")
    (other,) = verdict.first_failure.candidates
    assert (other.rank, "later" in other.why_not) == (0, True)


def test_different_faults_in_the_same_second_without_digits_are_not_ordered(judge):
    files = {
        f"rank_{rank}.log": lines(hello(rank, 2), f"{at(9)[:-4]} [rank {rank}] ERROR tinylm: {text}")
        for rank, text in ((0, NAN), (1, ILLEGAL))
    }
    verdict = judge(files)
    assert brief(verdict)[:3] == ("failed", "ambiguous", (0, 1))
    assert verdict.first_failure.would_settle


def test_different_faults_without_any_stamp_are_not_ordered(judge):
    files = {f"rank_{rank}.log": traceback(error) for rank, error in ((0, KEY), (1, ILLEGAL), (2, RESET), (3, RESET))}
    assert brief(judge(files))[:3] == ("failed", "ambiguous", (0, 1))


def test_a_launcher_that_saw_one_of_them_end_long_before_the_other_orders_them(judge):
    files = {f"rank_{rank}.log": traceback(error) for rank, error in ((0, KEY), (1, ILLEGAL))}
    one, two = box(10, (1, 1, 1, 4101)), box(20, (0, 0, 1, 4100))
    files["torchrun.out"] = one + two
    assert brief(judge(files)) == identified(1, "cuda_illegal_access")


def test_the_rank_that_filled_the_disk_first_is_named_though_others_failed_of_it_too(judge):
    faults = [(9 + 2 * order, rank, FULL.format(f"rank_{rank}.pt")) for order, rank in enumerate((2, 0, 3))]
    verdict = judge(job(*faults))
    assert brief(verdict) == identified(2, "disk_full")


def test_a_fault_long_after_others_were_in_trouble_is_none_of_the_first(judge):
    files = job((60, 3, NAN))
    for rank in (0, 1):
        files[f"rank_{rank}.log"] += lines(fault(20, rank, RESET), traceback(RESET))
    verdict = judge(files)
    assert 3 not in brief(verdict)[2]
    assert any("already in trouble" in row.why_not for row in verdict.first_failure.candidates)


def test_a_kernels_word_explains_the_error_that_its_rank_printed(judge):
    files = {f"rank_{rank}.log": lines(hello(rank, 4), steps(rank, 1, 5), traceback(RESET)) for rank in (0, 1, 3)}
    files["rank_2.log"] = lines(hello(2, 4), steps(2, 1, 5), fault(9, 2, ILLEGAL), fault(9.1, 2, KEY))
    assert brief(judge(files)) == identified(2, "cuda_illegal_access")


# Two clocks


def skewed(skew, *, marks, late=1.0):
    """Rank 1 on node-b fails first, rank 0 on node-a `late` seconds after it; node-b's clock is `skew` ahead."""
    text = {}
    for rank, host, ahead in ((0, "node-a", 0), (1, "node-b", skew)):
        told = [f"rank {rank} up on {host}", *([steps(rank, 1, 30, skew=ahead)] if marks else [])]
        text[rank] = told
    text[1].append(fault(31 + skew, 1, NAN))
    text[0].append(fault(31 + late, 0, ILLEGAL))
    return {f"node-{'ab'[rank]}/rank_{rank}.log": lines(*told) for rank, told in text.items()}


def test_the_end_of_the_set_up_alone_corrects_the_clocks(judge):
    files = skewed(3600.0, marks=False)
    for rank, ahead in ((0, 0), (1, 3600)):
        path = f"node-{'ab'[rank]}/rank_{rank}.log"
        files[path] = hello(rank, 2, f"node-{'ab'[rank]}", seconds=ahead) + "\n" + files[path]
    assert brief(judge(files))[2] != (0,)


@pytest.mark.parametrize("skew", [-20.0, -3.0, 3.0, 20.0, 300.0, 3600.0])
def test_shared_steps_correct_the_clocks_so_that_the_true_first_is_named(judge, skew):
    verdict = judge(skewed(skew, marks=True))
    assert brief(verdict) == identified(1, "nan_loss")
    told = {clock.host: clock.offset_s for clock in verdict.clocks}
    assert told["node-a"] - told["node-b"] == pytest.approx(skew, abs=0.1)


@pytest.mark.parametrize("skew", [-20.0, -3.0, 0.0, 3.0, 20.0, 7200.0])
def test_without_anything_shared_the_wrong_rank_alone_is_never_named(judge, skew):
    outcome, how, ranks, _ = brief(judge(skewed(skew, marks=False)))
    assert outcome == "failed"
    assert ranks != (0,)
    assert how != "identified" or 1 in ranks


def test_a_time_zone_is_told_apart_from_a_wrong_clock(judge):
    verdict = judge(skewed(7200.0, marks=True))
    assert {clock.host: clock.method for clock in verdict.clocks}["node-b"] == "time zone"


def marks(skews, count=20, jitter=0.0):
    """The same steps told by hosts whose clocks are off by `skews`."""
    draw = random.Random(5)
    table = Identity()
    told = []
    for rank, (host, skew) in enumerate(skews.items()):
        table.host_of_rank[rank] = host
        told += [
            signal(
                Role.PROGRESS, "prog.step", seconds=step + skew + jitter * draw.random(), rank=rank,
                fields={"step": str(step)},
            )
            for step in range(count)
        ]  # fmt: skip
    return estimate(told, table)


def test_offsets_of_clocks_are_found_from_steps_to_within_their_uncertainty():
    model = marks({"a": 0, "b": 12.5, "c": -3}, jitter=0.2)
    reference = model.hosts[model.reference].offset_ns
    for host, skew in (("a", 0.0), ("b", 12.5), ("c", -3.0)):
        clock = model.hosts[host]
        off = clock.offset_ns - reference - (skew - {"a": 0, "b": 12.5, "c": -3}[model.reference]) * NS
        assert abs(off) <= max(clock.epsilon_ns, NS // 5)


def test_few_shared_steps_leave_the_offset_unsure():
    few, many = marks({"a": 0, "b": 9}, count=2), marks({"a": 0, "b": 9}, count=20)
    assert few.slack_ns("a", "b") > many.slack_ns("a", "b") > 0


def test_nothing_is_assumed_of_hosts_that_share_nothing():
    assert estimate([], Identity()) == ClockModel()
    model = ClockModel("a", {"a": HostClock(0, 0, "reference")})
    assert model.slack_ns("a", "b") == UNKNOWN_NS
    assert model.slack_ns("b", "b") == 0
    assert model.slack_ns(None, "a") == 0
    assert model.common(7, "b") == 7


def test_steps_of_other_epochs_are_not_the_same_moment():
    table = Identity()
    table.host_of_rank = {0: "a", 1: "b"}
    told = [
        signal(
            Role.PROGRESS, "prog.x", seconds=100 * epoch + rank, rank=rank, fields={"epoch": str(epoch), "step": "1"}
        )
        for epoch, rank in ((0, 0), (1, 1))
    ]
    assert estimate(told, table) == ClockModel()


# Attempts


def attempt(base, culprit, error):
    return {
        f"logs/none_k3x_9a1b/attempt_{base}/{rank}/stderr.log": lines(
            hello(rank, 2, seconds=100 * base), steps(rank, 1, 5, start=100 * base + 1),
            traceback(error if rank == culprit else RESET),
        )
        for rank in range(2)
    }  # fmt: skip


def test_a_year_that_only_the_end_of_a_log_tells_is_that_of_the_kernels_log_too(judge):
    text = [f"[rank{rank}]: step {n}" for n in range(5) for rank in range(2)]
    console = lines(*text, traceback(ILLEGAL, "[rank1]: "), box(30, (1, 1, -6, 4101)).replace("2026-", "2024-"))
    kernel = "Dec  1 10:00:12 node-a kernel: NVRM: Xid (PCI:0000:a8:00): 79, GPU has fallen off the bus."
    verdict = judge({"train.log": console, "kern.log": lines(kernel)})
    assert brief(verdict) == identified(1, "gpu_lost")
    assert iso_time(verdict.first_failure.time).startswith("2024-12-01T10:00:12")


def test_each_attempt_of_torchrun_has_its_own_failure(judge):
    verdict = judge({**attempt(0, 0, KEY), **attempt(1, 1, OOM)})
    assert [row.index for row in verdict.attempts] == [0, 1]
    first, last = verdict.attempts
    assert (first.first_failure.ranks, first.first_failure.kind) == ((0,), "python_exception")
    assert brief(verdict) == identified(1, "cuda_oom")
    assert (last.outcome, last.first_failure) == (verdict.outcome, verdict.first_failure)


def one_file(*attempts, told):
    text = []
    for index, (culprit, error) in enumerate(attempts):
        base = 100 * index
        text += [hello(r, 2, pid=4100 + base + r, seconds=base) for r in range(2)]
        text += [steps(r, 1, 5, start=base + 1) for r in range(2)]
        if error is None:
            text += [steps(r, 6, 9, start=base + 8) for r in range(2)] + ["training done, best epoch 12, error 0.08"]
            continue
        text += [traceback(error if r == culprit else RESET, f"[rank{r}]: ") for r in range(2)]
        text += [closing(base + 9, 4100 + base + 1 - culprit), failed(base + 10, 1, culprit, 4100 + base + culprit)]
        if told and index < len(attempts) - 1:
            text += ["[default] Worker group FAILED. 2/3 attempts left; will restart worker group"]
    return {"train.log": lines(*text)}


@pytest.mark.parametrize("told", [True, False])
def test_attempts_inside_one_file_are_told_apart(judge, told):
    verdict = judge(one_file((0, KEY), (1, OOM), told=told))
    assert brief(verdict) == identified(1, "cuda_oom")
    assert [row.first_failure.kind for row in verdict.attempts] == ["python_exception", "cuda_oom"]


def two_ends(*between, agent=4000):
    """An agent tells of an end, and further down of another one; `agent` is who tells of the first."""
    text = [*(hello(rank, 2) for rank in range(2)), *(steps(rank, 1, 5) for rank in range(2))]
    for start, culprit, error in ((10, 1, KEY), (30, 0, FULL.format("x.pt"))):
        text += [traceback(error if rank == culprit else RESET, f"[rank{rank}]: ") for rank in range(2)]
        text += [failed(start, 1, culprit, 4000 + start + culprit)]
        text += between if start < 30 else ()
    return lines(*text).replace(" 4000 torch/", f" {agent} torch/", 1)


def test_an_agent_that_tells_of_two_ends_and_of_steps_in_between_started_its_processes_again(judge):
    verdict = judge({"train.log": two_ends(steps(0, 6, 9, 20))})
    assert [row.first_failure.ranks for row in verdict.attempts] == [(1,), (0,)]
    assert brief(verdict) == identified(0, "disk_full")


def test_two_ends_are_those_of_one_attempt_where_nothing_tells_that_processes_were_started_again(judge):
    assert [row.index for row in judge({"train.log": two_ends(steps(0, 6, 9, 20), agent=3999)}).attempts] == [0]
    # In containers each agent may be process 1; a line may be there twice.
    ends = [traceback(OOM, "[rank1]: "), failed(10, 1, 1, 101), traceback(RESET, "[rank2]: "), failed(12, 1, 0, 102)]
    verdict = judge({"train.log": lines(*ends, failed(12, 1, 0, 102))})
    assert [row.first_failure.ranks for row in verdict.attempts] == [(1,)]


def test_a_rank_that_raises_on_both_sides_of_an_end_was_started_again_in_between(judge):
    assert [row.first_failure.ranks for row in judge({"train.log": two_ends()}).attempts] == [(1,), (0,)]


def test_what_the_scheduler_tells_below_labelled_agents_is_of_the_last_attempt(judge):
    text = [f"{rank // 2}: {hello(rank, 4)}" for rank in range(4)]
    text += [f"1: {line}" for line in traceback(OOM, "[rank3]: ").splitlines()]
    text += [f"{node}: [default] Worker group FAILED. 2/3 attempts left; will restart worker group" for node in (0, 1)]
    text += [f"{rank // 2}: {hello(rank, 4, seconds=40)}" for rank in range(4)]
    text += ["srun: error: Node failure on node-b"]
    verdict = judge({"slurm-1.out": lines(*text)})
    assert [row.first_failure.kind for row in verdict.attempts] == ["cuda_oom", "node_failure"]
    assert verdict.outcome == "failed"


def test_an_agent_that_gave_up_below_a_label_of_srun_is_no_end_of_what_other_agents_run(judge):
    text = [f"{rank // 2}: {say(1, rank, f'rank {rank} of 4 starts')}" for rank in range(4)]
    text += [f"1: {line}" for line in traceback("ModuleNotFoundError: No module named 'apex'").splitlines()]
    text += [f"1: {failed(3, 1, 0, 4102)}"]
    text += [f"{rank // 2}: {hello(rank, 4, seconds=5)}" for rank in (0, 1)]
    store = "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 2/4 clients joined."
    for rank in (0, 1):
        text += [f"0: {line}" for line in traceback(store, f"[rank{rank}]: ").splitlines()]
    verdict = judge({"slurm-1.out": lines(*text)})
    assert [row.index for row in verdict.attempts] == [0]
    assert verdict.first_failure.kind == "import_error"


def test_a_restart_that_succeeds_makes_the_job_a_completed_one(judge):
    verdict = judge(one_file((0, KEY), (0, None), told=True))
    assert brief(verdict) == ("completed", None, (), None)
    assert verdict.attempts[0].first_failure.ranks == (0,)


def test_an_attempt_that_is_not_told_is_the_first_and_only_one(judge):
    verdict = judge(job((9, 1, NAN)))
    assert [(row.index, row.first_failure) for row in verdict.attempts] == [(0, verdict.first_failure)]


def test_a_clock_that_was_not_set_yet_tells_nothing_of_when_the_job_began(judge):
    log = (
        "1970-01-01 00:00:31,120 - train - INFO - starting\n"
        "2026-03-02 10:00:00,000 - train - INFO - step 1 loss 2.0\n"
        "2026-03-02 10:00:09,000 - train - ERROR - [rank0] RuntimeError: bad sample\n"
    )
    job = judge({"rank0.log": log, "rank1.log": "2026-03-02 10:00:01,000 - train - INFO - step 1 loss 2.0\n"}).job
    assert job.ended - job.started == 9 * 10**9


def test_gradients_that_are_nan_on_all_ranks_leave_open_which_rank_made_them_so(judge):
    gradients = "ValueError: Encountered nan gradients at step 412, stopping"
    loss = "ValueError: loss is nan at step 412, stopping"
    for fault, status in ((gradients, "ambiguous"), (loss, "identified")):
        files = {f"rank{rank}.log": f"[rank{rank}]: step 411 loss 2.0\n[rank{rank}]: {fault}\n" for rank in range(4)}
        failure = judge(files).first_failure
        assert (failure.status, failure.kind, failure.ranks) == (status, "nan_loss", (0, 1, 2, 3))
