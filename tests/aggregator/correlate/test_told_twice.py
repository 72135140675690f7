"""One fault that is told more than once: by the driver and its process, by a kernel's assertions and the exception."""

import pytest

from aggregator.pipeline import postmortem
from aggregator.verdict import Status

RAISED = """\
Traceback (most recent call last):
  File "/job/train.py", line 97, in main
    total += loss.item()
{}
"""
LOST = "RuntimeError: CUDA error: unspecified launch failure"
ASSERTED = "RuntimeError: CUDA error: device-side assert triggered"
ILLEGAL = "RuntimeError: CUDA error: an illegal memory access was encountered"
LINE = "/pt/aten/src/ATen/native/cuda/Loss.cu:250: nll: block: [0,0,0], thread: [{},0,0] Assertion `t >= 0` failed.\n"
WAITED = """\
[rank{0}]:[E211 03:14:22.123456 ProcessGroupNCCL.cpp:629] [Rank {0}] Watchdog caught collective operation timeout: \
WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600037 milliseconds before \
timing out.
"""
XID = "[Tue Feb 11 03:12:01 2025] NVRM: Xid (PCI:0000:{}:00): {}, pid=5121, name=python, {}\n"


@pytest.fixture
def failure_of(tmp_path):
    def write(**files):
        for name, text in files.items():
            (tmp_path / f"{name}.log").write_text(text)
        return postmortem([str(tmp_path)]).first_failure

    return write


def steps(stamp="[2025-02-11 02:00:0{}] "):
    return "".join(f"{stamp.format(step)}step {step} loss 2.1\n" for step in range(1, 6))


def test_the_driver_names_a_process_whose_host_nothing_tells(failure_of):
    files = {f"rank{rank}": f"pid {5119 + rank} rank {rank}\n{steps()}" for rank in range(4)}
    for rank in (0, 1, 3):
        files[f"rank{rank}"] += WAITED.format(rank)
    files["rank2"] += RAISED.format(LOST)
    failure = failure_of(dmesg=XID.format("84", 79, "GPU has fallen off the bus."), **files)
    assert (failure.ranks, failure.kind) == ((2,), "gpu_lost")
    assert failure.diagnosis.entry == "gpu-fell-off-bus"


def test_a_fault_long_after_another_of_its_rank_is_another(failure_of):
    later = "[2025-02-11 05:00:00] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    failure = failure_of(rank0=steps() + "[2025-02-11 02:01:00] " + ASSERTED + "\n" + later)
    assert failure.kind == "cuda_device_assert"


def test_assertions_and_the_exception_below_are_one_fault(failure_of):
    failure = failure_of(train=steps("") + LINE.format(3) + LINE.format(9) + RAISED.format(ASSERTED))
    assert failure.status is Status.UNDETERMINED
    assert failure.location == "/job/train.py:97"
    assert failure.reasons == ("the fault is certain, its rank is not told by any line, file or launcher",)
    assert failure.diagnosis.entry == "label-out-of-range"


def test_assertions_without_a_tag_are_of_the_rank_that_raises_below(failure_of):
    tagged = "".join(f"[rank1]: {line}\n" for line in RAISED.format(ASSERTED).splitlines())
    begun = "".join(f"[rank{rank}]: step {step} loss 2.1\n" for step in range(3) for rank in range(4))
    failure = failure_of(train=begun + "".join(LINE.format(thread) for thread in range(4)) + tagged)
    assert (failure.status, failure.ranks) == (Status.IDENTIFIED, (1,))


@pytest.mark.parametrize(("gpus", "faults"), [(["07"], 1), (["07", "0a"], 2)])
def test_the_driver_s_record_is_of_the_process_that_raises_if_it_is_of_one_gpu(failure_of, gpus, faults):
    dmesg = "".join(XID.format(gpu, 31, "Ch 00000008, MMU Fault") for gpu in gpus)
    failure = failure_of(dmesg=dmesg, train=steps("") + RAISED.format(ILLEGAL))
    assert ("not told by any line" in failure.reasons[0]) == (faults == 1)
    assert failure.ranks == ()


BUS = "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n"


@pytest.mark.parametrize("word", [BUS, ""], ids=["with its worker's word", "alone"])
def test_what_a_loaders_worker_prints_of_its_end_is_its_ranks_fault(failure_of, word):
    raised = RAISED.format("RuntimeError: DataLoader worker (pid(s) 4833) exited unexpectedly")
    text = "".join(f"[rank{rank}]: {line}\n" for rank in range(2) for line in steps().splitlines())
    failure = failure_of(train=text + word + "".join(f"[rank1]: {line}\n" for line in raised.splitlines()))
    assert (failure.status, failure.ranks) == (Status.IDENTIFIED, (1,))
    assert failure.kind == ("shm_exhausted" if word else "dataloader_worker_died")
