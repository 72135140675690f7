"""Faults that carry no rank: whose they are, where something else leaves only one, and nobody's where it does not."""

import pytest
from correlate_jobs import (
    FULL,
    KEY,
    RESET,
    box,
    brief,
    closing,
    failed,
    hello,
    identified,
    lines,
    say,
    steps,
    traceback,
)

from aggregator.correlate.identity import rank_in_path


def merged(*more, world=4):
    """One file of all ranks in which tracebacks carry no tag."""
    text = [hello(rank, world) for rank in range(world)]
    return {"train.log": lines(*text, *(steps(rank, 1, 5) for rank in range(world)), *more)}


OPEN = ("failed", "undetermined", (), "python_exception")


def test_a_traceback_that_names_the_file_of_one_rank_is_that_ranks(judge):
    verdict = judge(merged(traceback(FULL.format("zero_pp_rank_3_mp_rank_00_optim_states.pt"))))
    assert brief(verdict) == identified(3, "disk_full")
    assert any("the file that it was writing is that rank's" in reason for reason in verdict.first_failure.reasons)


@pytest.mark.parametrize(
    ("path", "rank"),
    [
        ("ckpt/global_step10/zero_pp_rank_4_mp_rank_00_optim_states.pt", 4),
        ("'./out/checkpoint-1190/rank_4_optim_states.pt'", 4),
        ("/data/rank7/x.bin", 7),
        ("rng_state_rank-11.pth", 11),
        ("zero_pp_rank_4_mp_rank_01_optim_states.pt", None),
        ("from rank_1.pt to rank_2.pt", None),
        ("mp_rank_03_model_states.pt", None),
        ("checkpoint-1190/optimizer.pt", None),
        ("lowrank_3.pt", None),
    ],
)
def test_a_path_tells_a_rank_only_where_it_is_surely_a_global_one(path, rank):
    assert rank_in_path(f"OSError: [Errno 28] No space left on device: {path}") == rank


@pytest.mark.parametrize("file", ["rendezvous.py", "elastic/rendezvous/c10d_rendezvous_backend.py"])
def test_the_port_of_the_store_is_opened_by_rank_0_unless_an_agent_keeps_it(judge, file):
    taken = (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
        "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
    )
    where = f"/opt/site-packages/torch/distributed/{file}"
    verdict = judge(merged(traceback(taken, file=where, function="_create_c10d_store")))
    wanted = ("identified", (0,)) if file == "rendezvous.py" else ("undetermined", ())
    assert brief(verdict)[1:] == (*wanted, "config_error")


def test_a_rank_in_a_path_beyond_the_world_is_none(judge):
    outcome, _, ranks, kind = brief(judge(merged(traceback(FULL.format("rank_9_states.pt")))))
    assert (outcome, ranks, kind) == ("failed", (), "disk_full")


def test_a_traceback_is_the_rank_s_that_its_launcher_saw_end(judge):
    verdict = judge(merged(traceback(KEY), closing(9, 4100, 4101, 4103), failed(10, 1, 2, 4102)))
    assert brief(verdict) == identified(2, "python_exception")
    assert any("the launcher" in reason for reason in verdict.first_failure.reasons)


def test_a_segfault_is_not_the_rank_s_that_ended_with_an_exit_code(judge):
    text = ["Fatal Python error: Segmentation fault", "", "Current thread 0x00007f17862b4b80 (most recent call first):"]
    text += ['  File "/home/mira/proj/data.py", line 48 in __getitem__', ""]
    ends = ["srun: error: node-a: task 1: Exited with exit code 1", "srun: error: node-a: task 3: Segmentation fault"]
    assert brief(judge(merged(*text, *ends))) == identified(3, "segfault")


def test_a_traceback_is_the_rank_s_that_is_left_when_all_others_have_errors_of_their_own(judge):
    others = [traceback(RESET, f"[rank{rank}]: ") for rank in (0, 1, 3)]
    verdict = judge(merged(traceback(KEY), *others))
    assert brief(verdict) == identified(2, "python_exception")
    assert verdict.first_failure.confidence < 0.9


def test_a_traceback_that_two_ranks_could_have_printed_is_nobodys(judge):
    others = [traceback(RESET, f"[rank{rank}]: ") for rank in (0, 1)]
    verdict = judge(merged(traceback(KEY), *others))
    assert brief(verdict) == OPEN
    assert verdict.first_failure.would_settle
    assert verdict.first_failure.evidence[0].text.startswith("KeyError")


def test_a_traceback_is_nobodys_where_the_launcher_saw_two_ranks_end_of_it(judge):
    ends = box(10, (1, 1, 1, 4101), (2, 2, 1, 4102))
    outcome, how, ranks, kind = brief(judge(merged(traceback(KEY), ends)))
    assert (outcome, kind) == ("failed", "python_exception")
    assert how != "identified" or ranks == (1, 2)


def test_two_prints_of_one_fault_are_those_of_the_two_ranks_that_ended_of_it(judge):
    ends = ["srun: error: node-a: tasks 1-2: Exited with exit code 1"]
    assert brief(judge(merged(traceback(KEY), traceback(KEY), *ends))) == identified((1, 2), "python_exception")


def test_a_fault_that_was_printed_by_those_that_ended_and_those_that_were_stopped_is_all_of_theirs(judge):
    text = [hello(rank, 4) for rank in range(4)] + [traceback("ImportError: no apex") for _ in range(4)]
    ends = [closing(9, 4101, 4102), box(10, (0, 0, 1, 4100), (3, 3, 1, 4103))]
    assert brief(judge({"train.log": lines(*text, *ends)})) == identified((0, 1, 2, 3), "import_error")
    assert brief(judge({"train.log": lines(*text[:-1], *ends)}))[2] != (0, 1, 2, 3)


def test_a_traceback_printed_by_nobody_of_one_host_is_at_least_that_hosts(judge):
    verdict = judge({"train.log": lines(*(hello(r, 4, "node-a") for r in range(4)), traceback(KEY), traceback(KEY))})
    assert brief(verdict) == OPEN
    assert verdict.first_failure.hosts == ("node-a",)


def test_a_schedulers_word_on_a_host_is_not_the_word_of_the_rank_that_is_left(judge):
    note = "slurmstepd: error: Detected 1 oom_kill event in StepId=123.0. Some of the step tasks have been OOM Killed."
    verdict = judge(merged(*(traceback(RESET, f"[rank{rank}]: ") for rank in (0, 1, 3)), note))
    assert brief(verdict) == ("failed", "undetermined", (), "host_oom")


def test_a_fault_of_no_known_rank_after_which_the_job_went_on_is_none(judge):
    verdict = judge(merged(traceback(KEY), *(steps(rank, 6, 9, start=8) for rank in range(4))))
    assert brief(verdict) == ("running", None, (), None)


def test_a_fault_that_stands_with_its_rank_elsewhere_is_not_a_second_one(judge):
    files = merged(traceback(KEY), say(9, 0, "bye"))
    files["rank_1.log"] = lines(hello(1, 4), traceback(KEY))
    assert brief(judge(files)) == identified(1, "python_exception")


def joined_in_vain(*after):
    """Four import errors, an agent's box that lists its four ranks, and errors of ranks of other nodes."""
    error = "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory"
    lost = "torch.distributed.DistNetworkError: Connection reset by peer"
    ends = box(8, *((rank, rank - 8, 1, 4011 + rank - 8) for rank in range(8, 12)), host="node-c")
    told, waited = [traceback(error) for _ in range(4)], [traceback(lost) for _ in range(4)]
    return {"run.log": lines(*told, *((ends, *waited) if not after else (*waited, ends)))}


def test_errors_above_the_box_that_lists_so_many_ranks_are_theirs_whatever_stands_below_it(judge):
    verdict = judge(joined_in_vain())
    assert brief(verdict) == identified((8, 9, 10, 11), "import_error")
    assert verdict.first_failure.hosts == ("node-c",)


def test_a_box_below_the_errors_of_others_may_be_of_their_ends(judge):
    assert brief(judge(joined_in_vain("box"))) == ("failed", "undetermined", (), "import_error")


def two_nodes(*waited):
    """Two errors of their own, then an agent's report on two ranks; errors of waiting; another agent's report."""
    own = traceback("ModuleNotFoundError: No module named 'bitsandbytes'")
    ends = box(8, (2, 0, 1, 911), (3, 1, 1, 912), host="node-b")
    later = box(640, (0, 0, 1, 511), (1, 1, 1, 512), host="node-a")
    vain = "torch.distributed.DistStoreError: wait timeout after 600000ms, keys: /default_pg/0//cuda//0"
    return {"slurm-7.out": lines(own, own, ends, *(traceback(vain) for _ in range(*waited)), later)}


def test_of_two_reports_the_first_is_of_the_errors_above_it_where_those_below_are_of_the_second(judge):
    assert brief(judge(two_nodes(2))) == identified((2, 3), "import_error")


@pytest.mark.parametrize("waited", [0, 1])
def test_of_two_reports_none_is_of_an_error_where_not_every_end_is_accounted_for(judge, waited):
    assert brief(judge(two_nodes(waited)))[1:3] == ("undetermined", ())
