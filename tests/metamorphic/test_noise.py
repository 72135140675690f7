"""Loud victims, quoted errors and torn, packed or coloured files leave the verdict as it is."""

import gzip
import re

import pytest
from metamorphic_jobs import Files, assert_same, is_text, job_of, joined, judge, lines_of, rank_of, rewrite, truth_of

RUNS = [
    "eval-oom-no-grad", "torchrun-logdir-eval-oom", "interleaved-nan", "slurm-label-cgroup-oom", "slurm-node-failure",
    "hang-flight-recorder", "collective-shape-mismatch", "two-node-segfault", "k8s-oomkilled",
    "completed-noisy-shutdown", "ray-actor-oom",
]  # fmt: skip
# In the one that is left out, victims log no error at all.
LOUD = [name for name in RUNS if truth_of(name).collateral and name != "eval-oom-no-grad"]
# The file that rank 0 or the launcher writes first, and the tag of rank 0 in it.
VOICE = {
    "eval-oom-no-grad": ("exp/ade20k/log/rank0.log", ""),
    "torchrun-logdir-eval-oom": ("job.out", ""),
    "interleaved-nan": ("train.log", ""),
    "slurm-label-cgroup-oom": ("slurm-6.out", "0: "),
    "slurm-node-failure": ("out/tx-a.0.log", ""),
    "hang-flight-recorder": ("train.log", ""),
    "collective-shape-mismatch": ("job.out", "[default0]:"),
    "two-node-segfault": ("dgx-r7-01/torchrun.out", "[default0]:"),
    "k8s-oomkilled": ("kubectl-logs-prefix.txt", "[pod/vits-large-master-0/pytorch] "),
    "completed-noisy-shutdown": ("train.log.txt", ""),
    "ray-actor-oom": ("driver.log", ""),
}
HELP = """\
usage: train.py [-h] [--oom-retry N] [--nccl-timeout S] [--on-nan {skip,stop}]
  --oom-retry N     try a batch again after "torch.OutOfMemoryError: CUDA out of memory" (default: 0)
  --nccl-timeout S  seconds until "Watchdog caught collective operation timeout" ends the job
  --on-nan {skip,stop}  what to do when the log says "Loss is nan, stopping training"
  --restart-on TEXT end of a rank that is restarted, such as "Segmentation fault (core dumped)" or "exitcode: -9\""""
CONFIG = """\
trainer:
  on_error: "Watchdog caught collective operation timeout"
  retry_on: ["CUDA out of memory", "NCCL error: unhandled system error", "Segmentation fault (core dumped)"]
  ignore_patterns:
    - "slurmstepd: error: Detected 1 oom-kill event(s) in StepId"
    - 'RuntimeError: CUDA error: device-side assert triggered'
  skip_if_log_has: "NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus"
  disk: {full_message: "OSError: [Errno 28] No space left on device", stop: true}"""
ARGUMENTS = """\
Namespace(lr=0.0003, oom_message='CUDA out of memory. Tried to allocate', fatal=['Bus error', 'ECC error'])
{"restart_patterns": ["RuntimeError: CUDA error: an illegal memory access was encountered", "Killed"], "max": 3}"""
ADVICE = """\
Note: on "RuntimeError: DataLoader worker (pid 123) is killed by signal: Bus error" raise the size of /dev/shm.
Tip: if you see `torch.OutOfMemoryError: CUDA out of memory`, lower --batch-size; see docs/faq.md"""
QUOTED_FILES = {
    "README.md": "# Known problems\n\n`torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB`\n\n"
    "    [rank5]: RuntimeError: CUDA error: device-side assert triggered\n",
    "config.yaml": CONFIG + "\n",
    "run.sh": "#!/bin/bash\ntorchrun train.py || grep -q 'CUDA out of memory' train.log && exit 75\n"
    "echo 'Segmentation fault (core dumped)'\n",
    "guard.py": 'raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")\n',
    "requirements.txt": "torch==2.7.0  # 2.6 has: Watchdog caught collective operation timeout\n",
}
TAG = re.compile(r"^(?:\d+: |\[pod/[^\]]*\] |\[default\d\]:)?")
LOUD_LINE = re.compile(r"[Ee]rror|ERROR|Traceback")
BAR = " 10%|#         | 10/100 [00:01<00:09, 9.99it/s]"


def texts(files: Files, change) -> Files:
    """The job with `change` applied to the bytes of each text file that is not empty."""
    return {path: change(data) if data and is_text(path) else data for path, data in files.items()}


def loudest(name: str, files: Files) -> tuple[str, int]:
    """The file and the victim with the most lines in it from a traceback or an error on."""
    count = {}
    for path, data in files.items():
        for line in lines_of(data) if is_text(path) else []:
            rank = rank_of(name, path, line)
            if rank in truth_of(name).collateral and (LOUD_LINE.search(line) or (path, rank) in count):
                count[path, rank] = count.get((path, rank), 0) + 1
    return max(count, key=lambda key: (count[key], key))


@pytest.mark.parametrize("name", LOUD)
@pytest.mark.parametrize("times", [2, 100])
def test_a_victim_that_says_everything_many_times_stays_a_victim(name, times):
    files = job_of(name)
    path, rank = loudest(name, files)
    lines = lines_of(files[path])
    own = [i for i, line in enumerate(lines) if rank_of(name, path, line) == rank]
    first = next(place for place, i in enumerate(own) if LOUD_LINE.search(lines[i]))
    block = [lines[i] for i in own[first:]]
    files[path] = joined(lines[: own[-1] + 1] + block * (times - 1) + lines[own[-1] + 1 :])
    assert_same(judge(files), truth_of(name))


def test_noise_at_exit_that_repeats_a_hundred_times_is_still_no_failure():
    name, path = "completed-noisy-shutdown", "train.log.txt"
    files = job_of(name)
    lines = lines_of(files[path])
    first = next(i for i, line in enumerate(lines) if line.startswith("Exception ignored in"))
    last = next(i for i, line in enumerate(lines) if "resource_tracker" in line)
    files[path] = joined(lines[:first] + lines[first:last] * 100 + lines[last:])
    assert_same(judge(files), truth_of(name))


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("quote", [HELP, CONFIG, ARGUMENTS, ADVICE], ids=["help", "config", "arguments", "advice"])
def test_errors_quoted_where_the_program_starts_are_no_failures(name, quote):
    path, tag = VOICE[name]
    files = job_of(name)
    files[path] = joined([tag + line for line in quote.split("\n")]) + files[path]
    assert_same(judge(files), truth_of(name))


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("path", QUOTED_FILES)
def test_errors_quoted_in_a_file_beside_the_logs_are_no_failures(name, path):
    assert_same(judge({**job_of(name), path: QUOTED_FILES[path].encode()}), truth_of(name))


@pytest.mark.parametrize("name", RUNS)
def test_packed_files_give_the_same_verdict(name):
    packed = {path + ".gz": gzip.compress(data, 1) for path, data in job_of(name).items()}
    assert_same(judge(packed), truth_of(name))


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_rotated_files_give_the_same_verdict(name, share):
    files = {}
    for path, data in job_of(name).items():
        lines = lines_of(data) if path.endswith((".log", ".out")) else []
        cut = int(len(lines) * share)
        files[path] = joined(lines[cut:]) if cut else data
        if cut:
            files[path + ".1"] = joined(lines[:cut])
    assert_same(judge(files), truth_of(name))


@pytest.mark.parametrize("name", RUNS)
def test_zeros_that_a_crash_leaves_in_files_change_nothing(name):
    def torn(data: bytes) -> bytes:
        middle = data.find(b"\n", len(data) // 2) + 1
        return data[:middle] + bytes(512) + data[middle:] + bytes(4096)

    assert_same(judge(texts(job_of(name), torn)), truth_of(name))


@pytest.mark.parametrize("name", RUNS)
def test_progress_bars_between_the_lines_change_nothing(name):
    def change(_path: str, line: str) -> str:
        tag = TAG.match(line)[0]
        return f"{tag}{BAR}\r{BAR}\r{BAR}\n{line}" if LOUD_LINE.search(line) else line

    assert_same(judge(rewrite(job_of(name), change)), truth_of(name))


@pytest.mark.parametrize("name", RUNS)
def test_progress_bars_that_lines_overwrite_change_nothing(name):
    def change(_path: str, line: str) -> str:
        tag = TAG.match(line)[0]
        return f"{tag}{BAR}\r{line[len(tag) :]}" if LOUD_LINE.search(line) else line

    assert_same(judge(rewrite(job_of(name), change)), truth_of(name))


@pytest.mark.parametrize("name", RUNS)
def test_coloured_lines_change_nothing(name):
    def change(_path: str, line: str) -> str:
        tag = TAG.match(line)[0]
        return f"{tag}\x1b[1;31m{line[len(tag) :]}\x1b[0m" if line else line

    assert_same(judge(rewrite(job_of(name), change)), truth_of(name))


@pytest.mark.parametrize("name", RUNS)
def test_line_ends_of_windows_change_nothing(name):
    assert_same(judge(texts(job_of(name), lambda data: data.replace(b"\n", b"\r\n"))), truth_of(name))


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("tail", [b"", b"[rank", b"2026-12-01 20:5", "\u2601".encode()[:2]])
def test_a_partial_last_line_changes_nothing(name, tail):
    def torn(data: bytes) -> bytes:
        return data.removesuffix(b"\n") + (b"\n" + tail if tail else b"")

    assert_same(judge(texts(job_of(name), torn)), truth_of(name))


@pytest.mark.parametrize("name", RUNS)
def test_a_last_line_cut_in_half_changes_nothing(name):
    def torn(data: bytes) -> bytes:
        last = data.removesuffix(b"\n").rpartition(b"\n")[2]
        return data.removesuffix(b"\n")[: -(len(last) // 2) or None]

    assert_same(judge(texts(job_of(name), torn)), truth_of(name))
