"""Hosts and pods that were lost, or never started anything, and whose ranks are those that nobody heard."""

import pytest
from correlate_jobs import brief, c10, hello, identified, lines, say

LOST = (
    "[Rank {}] Collective WorkNCCL(SeqNum=81, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) raised the "
    "following async exception: NCCL error: remote process exited or there was a network error, NCCL version 2.21.5"
)
LAUNCH = "srun: error: Task launch for StepId=123.0 failed on node node-c: Job prolog failed"
PULL = lines(
    "NAME          READY   STATUS             RESTARTS   AGE",
    "tts-worker-0   0/1     Error              0          19m",
    "tts-worker-2   0/1     ImagePullBackOff   0          19m",
)


def heard(*silent, world=8):
    """One labelled file of a step, in which all ranks but these speak."""
    ranks = [rank for rank in range(world) if rank not in silent]
    return lines(*(f"{rank}: {say(2, None, f'rank {rank} of {world} starts')}" for rank in ranks))


def test_ranks_that_nobody_heard_are_those_of_the_host_on_which_srun_could_start_none(judge):
    verdict = judge(
        {"job.log": lines(LAUNCH, "srun: error: Application launch failed: Job prolog failed", heard(4, 5))}
    )
    assert brief(verdict) == identified((4, 5), "config_error")
    assert verdict.first_failure.hosts == ("node-c",)


@pytest.mark.parametrize(
    "silent", [(3, 4), (4, 6), (4, 5, 6)], ids=["not where a host begins", "a gap", "no host's size"]
)
def test_ranks_that_are_no_hosts_block_are_not_put_on_it(judge, silent):
    assert brief(judge({"job.log": lines(LAUNCH, heard(*silent))}))[1:3] == ("undetermined", ())


def test_of_two_hosts_that_started_nothing_no_block_is_the_ones(judge):
    verdict = judge({"job.log": lines(LAUNCH, LAUNCH.replace("node-c", "node-d"), heard(4, 5, 6, 7))})
    assert brief(verdict)[1:3] != ("identified", (4, 5, 6, 7))


def test_ranks_that_nobody_heard_are_those_of_the_pod_that_never_started(judge):
    files = {
        f"logs/tts-worker-{pod}.log": lines(
            *(hello(rank, 6, f"tts-worker-{pod}") for rank in (2 * pod, 2 * pod + 1)),
            *(c10(20, rank, LOST.format(rank)) for rank in (2 * pod, 2 * pod + 1)),
        )
        for pod in range(2)
    }
    verdict = judge({**files, "pods.txt": PULL})
    assert brief(verdict) == identified((4, 5), "config_error")
    assert verdict.first_failure.hosts == ("tts-worker-2",)


def test_a_pod_of_something_else_that_never_started_has_none_of_the_ranks(judge):
    files = {"logs/tts-worker-0.log": lines(*(hello(rank, 4, "tts-worker-0") for rank in range(2)))}
    files["logs/tts-worker-0.log"] += lines(*(c10(20, rank, LOST.format(rank)) for rank in range(2)))
    verdict = judge({**files, "pods.txt": PULL.replace("tts-worker-2", "tensorboard-0")})
    assert brief(verdict)[1:3] != ("identified", (2, 3))


STERN = "llm-workers-0-{0}-x9{0}kw trainer 2026-12-01T10:{1:02}:00.012345678Z {2}"
ASSIGNED = (
    "2026-12-01T09:59:00Z  Normal  Scheduled  pod/llm-workers-0-{0}-x9{0}kw  Successfully assigned "
    "ft/llm-workers-0-{0}-x9{0}kw to gpu-pool-7f{0}"
)
NOT_READY = "2026-12-01T10:10:00Z  Normal  NodeNotReady  {0}"


@pytest.mark.parametrize(
    "event",
    [
        "node/gpu-pool-7f4  Node gpu-pool-7f4 status is now: NodeNotReady",
        "pod/llm-workers-0-4-x94kw  Node is not ready",
    ],
    ids=["node", "pod"],
)
def test_the_ranks_of_a_pod_that_a_collector_tags_are_lost_with_its_machine(judge, event):
    told = []
    for pod in (2, 4):
        for rank in (pod - 2, pod - 1):
            told += [STERN.format(pod, minute, f"[rank{rank}]: step {minute}") for minute in range(1, 9)]
    told += [STERN.format(2, 20, c10(1200, rank, LOST.format(rank))) for rank in (0, 1)]
    events = lines(*(ASSIGNED.format(pod) for pod in (2, 4)), NOT_READY.format(event))
    verdict = judge({"stern.log": lines(*told), "events.txt": events})
    assert brief(verdict) == identified((2, 3), "node_failure")


def test_a_daemon_that_mpirun_lost_is_no_lost_host_where_the_pod_was_killed_for_its_memory(judge):
    log = [f"[1,{rank}]<stderr>:{say(2, None, f'rank {rank} of 4 on mpi-worker-{rank // 2}')}" for rank in range(4)]
    log += [hello(rank, 4, f"mpi-worker-{rank // 2}") for rank in range(4)]
    lost = lines(
        "-" * 74,
        "ORTE has lost communication with a remote daemon.",
        "",
        "  HNP daemon   : [[42896,0],0] on node mpi-launcher",
        "  Remote daemon: [[42896,0],2] on node mpi-worker-1",
        "-" * 74,
    )
    pods = lines(
        "NAME           READY   STATUS      RESTARTS   AGE", "mpi-worker-1   0/1     OOMKilled   0          83m"
    )
    assert brief(judge({"launcher.log": lines(*log, lost), "pods.txt": pods})) == identified((2, 3), "host_oom")
    assert brief(judge({"launcher.log": lines(*log, lost)})) == identified((2, 3), "node_failure")


@pytest.mark.parametrize(("node", "told"), [("node-1", ("identified", (2, 3))), ("node-7", ("undetermined", ()))])
def test_a_lost_node_of_the_cluster_on_which_no_rank_ran_is_none_of_the_jobs(judge, node, told):
    log = [hello(rank, 4, f"node-{rank // 2}") for rank in range(4)] + [c10(20, 0, LOST.format(0))]
    event = NOT_READY.format(f"node/{node}  Node {node} status is now: NodeNotReady")
    assert brief(judge({"train.log": lines(*log), "events.txt": event}))[1:3] == told
