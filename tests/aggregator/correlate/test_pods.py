"""What the cluster and a machine's kernel tell of a pod or its machine is of the ranks that run in that pod."""

import pytest
from correlate_jobs import brief, c10, closing, failed, hello, identified, lines, say, steps

EVICTED = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 62064Ki."
REMOTE = (
    "[Rank {}] Collective WorkNCCL(SeqNum=81, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) raised the "
    "following async exception: NCCL error: remote process exited or there was a network error, NCCL version 2.21.5"
)


def pods(struck, per_pod=1, count=4):
    """A log a pod, of `per_pod` ranks; all but the struck pod's ranks, if one is, lose their peers."""
    files = {}
    for pod in range(count):
        ranks = range(pod * per_pod, (pod + 1) * per_pod)
        lost = [c10(20, rank, REMOTE.format(rank)) for rank in ranks if pod != struck and struck is not None]
        told = [hello(rank, count * per_pod, f"tts-worker-{pod}") for rank in ranks]
        files[f"logs/tts-worker-{pod}.log"] = lines(*told, *(steps(rank, 1, 5) for rank in ranks), *lost)
    return files


def events(pod, message=EVICTED, reason="Evicted"):
    return lines(
        "LAST SEEN   TYPE      REASON     OBJECT             MESSAGE",
        f"21m         Warning   {reason}    pod/{pod}   {message}",
        "20m         Warning   BackOff    pod/tts-worker-0   Back-off restarting failed container pytorch",
    )


def test_an_event_names_the_pod_whose_log_tells_its_rank(judge):
    verdict = judge({**pods(2), "events.txt": events("tts-worker-2")})
    assert brief(verdict) == identified(2, "host_oom")
    assert verdict.first_failure.hosts == ("tts-worker-2",)


def test_a_pod_is_evicted_with_all_its_ranks(judge):
    verdict = judge({**pods(2, per_pod=2), "events.txt": events("tts-worker-2")})
    assert brief(verdict) == identified((4, 5), "host_oom")


def test_an_event_of_a_pod_of_another_job_is_no_ranks(judge):
    assert brief(judge({**pods(2), "events.txt": events("web-7")}))[1:3] == ("undetermined", ())


WIDE = lines(
    "NAME           READY   STATUS    RESTARTS   AGE   IP            NODE",
    *(f"tts-worker-{n}   0/1     Error     0          1h    10.42.5.{n}     gpu-pool-7f{n}" for n in range(4)),
)
ASSIGNED = lines(
    *(f"30m  Normal  Scheduled  pod/tts-worker-{n}  Successfully assigned ml/tts-worker-{n} to gpu-pool-7f{n}"
      for n in range(4))
)  # fmt: skip
DESCRIBED = lines(
    *(f"Name:             tts-worker-{n}\nNamespace:        ml\nNode:             gpu-pool-7f{n}/10.1.0.{n}"
      for n in range(4))
)  # fmt: skip


@pytest.mark.parametrize("placed", [WIDE, ASSIGNED, DESCRIBED], ids=["wide", "assigned", "described"])
def test_what_a_machines_kernel_tells_of_a_gpu_is_of_the_rank_in_a_pod_there_that_has_it(judge, placed):
    files = pods(1, per_pod=2)
    for pod in range(4):
        init = [
            f"tts-worker-{pod}:{101 + gpu}:{300 + gpu} [{gpu}] NCCL INFO ncclCommInitRankConfig comm 0x55da rank "
            f"{2 * pod + gpu} nranks 8 cudaDev {gpu} nvmlDev {gpu} busId {bus} commId 0x7c1d - Init COMPLETE"
            for gpu, bus in enumerate(("f000", "a8000"))
        ]
        files[f"logs/tts-worker-{pod}.log"] += lines(*init)
    xid = "Dec 01 10:00:12 gpu-pool-7f1 kernel: NVRM: Xid (PCI:0000:a8:00): 79, GPU has fallen off the bus."
    verdict = judge({**files, "nodes/gpu-pool-7f1.journal": lines(xid), "pods.txt": placed})
    assert brief(verdict) == identified(3, "gpu_lost")
    unplaced = judge({**files, "nodes/gpu-pool-7f1.journal": lines(xid), "pods.txt": say(0, None, "none")})
    assert brief(unplaced)[1:3] == ("undetermined", ())


def test_a_container_that_was_restarted_and_finished_has_an_attempt_for_each_start(judge):
    files = {}
    for rank in range(2):
        folder = f"pods/ml_tts-worker-{rank}_77aa/pytorch"
        raised = [say(20, rank, f"RuntimeError: Connection closed by peer [10.4.0.{rank}]:4411")] if rank else []
        files[f"{folder}/0.log"] = lines(hello(rank, 2, f"tts-worker-{rank}"), steps(rank, 1, 5), *raised)
        files[f"{folder}/1.log"] = lines(
            hello(rank, 2, f"tts-worker-{rank}", seconds=40),
            steps(rank, 5, 9, 50),
            say(60, rank, "training done, best acc 0.761"),
        )
    verdict = judge(files)
    assert [attempt.outcome for attempt in verdict.attempts] == ["failed", "completed"]
    assert verdict.outcome == "completed"


def test_what_a_pod_tells_that_was_started_again_alone_came_after_the_failure(judge):
    files = pods(None)
    for pod in range(4):
        lost = [c10(20, pod, REMOTE.format(pod))] if pod != 2 else []
        files[f"pods/ml_tts-worker-{pod}_77aa/pytorch/0.log"] = files.pop(f"logs/tts-worker-{pod}.log") + lines(*lost)
    refused = "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms"
    files["pods/ml_tts-worker-2_77aa/pytorch/1.log"] = lines(
        hello(2, 4, "tts-worker-2", seconds=30), say(90, 2, refused)
    )
    verdict = judge(files)
    assert [attempt.index for attempt in verdict.attempts] == [0]
    assert brief(verdict)[1:3] == ("identified", (2,))


SUCCEEDED = lines(
    "Name:             tts-worker-1",
    "Namespace:        ml",
    "Status:           Succeeded",
    "    State:          Terminated",
    "      Reason:       Completed",
    "      Exit Code:    0",
    "    Last State:     Terminated",
    "      Reason:       Error",
    "      Exit Code:    1",
)


def test_how_a_container_ended_before_it_was_started_again_is_no_failure_of_a_pod_that_succeeded(judge):
    files = pods(None)
    done = lines(
        "NAME           READY   STATUS      RESTARTS   AGE", "tts-worker-1   0/1     Completed   1          1h"
    )
    assert brief(judge({**files, "describe.txt": SUCCEEDED, "pods.txt": done}))[0] == "completed"
    failed = SUCCEEDED.replace("Succeeded", "Failed")
    assert brief(judge({**files, "describe.txt": failed}))[0] == "failed"


def test_of_a_container_whose_launcher_saw_one_rank_killed_that_rank_alone_ran_out_of_memory(judge):
    files = pods(None, per_pod=2, count=2)
    files["logs/tts-worker-1.log"] += lines(failed(9, -9, 1, 4103), closing(9, 4102))
    listed = lines(
        "NAME           READY   STATUS      RESTARTS   AGE", "tts-worker-1   0/1     OOMKilled   0          83m"
    )
    assert brief(judge({**files, "pods.txt": listed})) == identified(3, "host_oom")
    alone = {path: text.split("W1201")[0].split("E1201")[0] for path, text in files.items()}
    assert brief(judge({**alone, "pods.txt": listed})) == identified((2, 3), "host_oom")
