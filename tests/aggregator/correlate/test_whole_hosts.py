"""Faults of which a whole host is the place: what is installed there, the node itself, the links that join hosts."""

import pytest
from correlate_jobs import brief, hello, identified, kernel, lines, say, steps, traceback

HOSTS = ("node-a", "node-b")
IMPORT = "ImportError: cannot import name 'flash_attn_func' from 'flash_attn' (/opt/env/lib/flash_attn/__init__.py)"


def greetings(hosts=HOSTS, each=4):
    return "".join(
        hello(number * each + local, len(hosts) * each, host, pid=5000 + number * each + local) + "\n"
        for number, host in enumerate(hosts)
        for local in range(each)
    )


@pytest.mark.parametrize("ranks", [(4, 5), (4, 6, 7)])
def test_what_half_of_a_host_s_ranks_cannot_import_the_whole_host_lacks(judge, ranks):
    text = greetings() + "".join(traceback(IMPORT, f"[rank{rank}]: ") for rank in ranks)
    verdict = judge({"train.log": text})
    assert brief(verdict) == identified((4, 5, 6, 7), "import_error")
    assert verdict.first_failure.hosts == ("node-b",)
    assert any("what that host lacks" in reason for reason in verdict.first_failure.reasons)


@pytest.mark.parametrize("ranks", [(4,), (1, 4, 5, 6)])
def test_one_rank_or_ranks_of_several_hosts_tell_of_no_host(judge, ranks):
    text = greetings() + "".join(traceback(IMPORT, f"[rank{rank}]: ") for rank in ranks)
    assert brief(judge({"train.log": text})) == identified(ranks, "import_error")


def test_one_of_two_ranks_is_no_half_of_a_host(judge):
    text = greetings(each=2) + traceback(IMPORT, "[rank3]: ")
    assert judge({"train.log": text}).first_failure.ranks == (3,)


def test_half_of_the_ranks_in_a_row_may_share_a_batch(judge):
    text = greetings() + "".join(traceback("KeyError: 'input_ids'", f"[rank{rank}]: ") for rank in (4, 5))
    assert judge({"train.log": text}).first_failure.ranks == (4, 5)


def test_after_the_first_steps_a_program_s_own_error_is_that_of_its_ranks(judge):
    text = greetings() + "".join(steps(rank, 1, 3) for rank in range(8))
    text += "".join(traceback("KeyError: 'input_ids'", f"[rank{rank}]: ") for rank in (4, 5, 7))
    assert judge({"train.log": text}).first_failure.ranks == (4, 5, 7)


def test_a_lost_node_takes_all_its_ranks_also_those_that_never_named_it(judge):
    told = lines(hello(0, 8, "node-a"), hello(4, 8, "node-b"), hello(5, 8, "node-b"), steps(0, 1, 9), steps(5, 1, 9))
    verdict = judge({"train.log": told + "srun: error: Node failure on node-b\n"})
    assert (verdict.first_failure.kind, verdict.first_failure.ranks) == ("node_failure", (4, 5, 6, 7))


def test_where_the_known_ranks_may_go_round_the_hosts_none_is_filled_in(judge):
    told = lines(hello(0, 8, "node-a"), hello(5, 8, "node-b"), steps(0, 1, 9), steps(5, 1, 9))
    assert judge({"train.log": told + "srun: error: Node failure on node-b\n"}).first_failure.ranks == (5,)


def test_where_ranks_go_round_the_hosts_no_block_is_assumed(judge):
    told = lines(hello(0, 4, "node-a"), hello(1, 4, "node-b"), hello(2, 4, "node-a"), steps(0, 1, 9), steps(1, 1, 9))
    verdict = judge({"train.log": told + "srun: error: Node failure on node-b\n"})
    assert verdict.first_failure.ranks == (1,)


def test_of_links_between_hosts_the_one_that_tells_of_a_fatal_error_broke(judge):
    """Each end on another host; the errors of the others come earlier and are not fatal."""
    error = "RuntimeError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error"
    files = {}
    for number, host in enumerate(("r07-t01", "r07-t02", "r07-t03")):
        own = "\n".join(
            [
                hello(number, 3, host, pid=5000 + number),
                say(0, number, f"{host}:{5000 + number}:{5040 + number} [0] NCCL INFO comm 0x9 rank {number} nranks 3 "
                    "cudaDev 0 nvmlDev 0 busId 1801000 commId 0x1 - Init COMPLETE"),
                steps(number, 1, 9),
            ]
        )  # fmt: skip
        files[f"{host}/rank_{number}.log"] = own + traceback(error)
        what = "149, NETIR_LINK_EVT Fatal XC0" if number == 1 else "145, RLW_REMAP Nonfatal XC1"
        files[f"{host}/dmesg.txt"] = lines(
            kernel(0, "nvidia-modeset: Loading NVIDIA Kernel Mode Setting Driver"),
            kernel(10 + (number == 1), f"NVRM: Xid (PCI:0018:01:00): {what} i0 Link 11 (0x1)"),
        )
    verdict = judge(files)
    assert (verdict.first_failure.ranks, verdict.first_failure.hosts) == ((1,), ("r07-t02",))


def test_what_a_rank_raised_at_a_checkpoint_is_told_by_all_and_is_its_own(judge):
    """torch.distributed.checkpoint sends the traceback of the rank that failed to all others, which raise it."""
    sent = lines(
        "[rank{0}]: Traceback (most recent call last):",
        '[rank{0}]:   File "/w/train.py", line 40, in <module>',
        "[rank{0}]:     dcp.save(state, checkpoint_id=path)",
        "[rank{0}]: torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([3])",
        "[rank{0}]: Traceback (most recent call last): (RANK 3)",
        '[rank{0}]:   File "/opt/env/torch/distributed/checkpoint/filesystem.py", line 470, in _write_files_from_queue',
        "[rank{0}]:     os.fsync(stream.fileno())",
        "[rank{0}]: OSError: [Errno 5] Input/output error",
        "",
    )
    text = greetings() + "".join(steps(rank, 1, 3) for rank in range(8))
    verdict = judge({"train.log": text + "".join(sent.format(rank) for rank in (0, 5, 1, 7))})
    assert brief(verdict) == identified(3, "storage_io")
    assert verdict.first_failure.hosts == ("node-a",)


def test_what_the_process_says_of_a_fault_that_the_driver_told_is_no_second_fault(judge):
    def log(host, *ranks):
        return lines(*(hello(rank, 4, host, 4100 + rank) for rank in ranks), *(steps(rank, 1, 9) for rank in ranks))

    xid = "NVRM: Xid (PCI:0000:5d:00): 13, pid=4103, name=python, Graphics SM Warp Exception on (GPC 2, TPC 4, SM 0)"
    files = {
        "logs/node-a.log": log("node-a", 0, 1),
        "logs/node-b.log": log("node-b", 2, 3) + traceback("RuntimeError: CUDA error: unspecified launch failure"),
        "dmesg-node-b.txt": lines(
            kernel(0, "nvidia-modeset: Loading NVIDIA Kernel Mode Setting Driver"), kernel(11, xid)
        ),
    }
    assert brief(judge(files)) == identified(3, "cuda_illegal_access")


def test_pods_in_which_torchrun_ran_are_no_ranks(judge):
    pods = "NAME READY STATUS RESTARTS AGE\n"
    pods += "".join(
        f"moe-worker-{n}   0/1     {'ImagePullBackOff' if n == 2 else 'Error'}   0   16m\n" for n in range(4)
    )
    agent = lines(
        "Traceback (most recent call last):",
        '  File "/opt/env/torch/distributed/elastic/rendezvous/dynamic_rendezvous.py", line 663, in _join_rendezvous',
        "    raise RendezvousTimeoutError",
        "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
    )
    verdict = judge({"get-pods.txt": pods, **{f"moe-worker-{n}.log": agent for n in (0, 1, 3)}})
    assert verdict.first_failure.ranks == ()
