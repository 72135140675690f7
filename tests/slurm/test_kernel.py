"""What of the node's kernel log is taken for a job, and what a verdict makes of it."""

import os
import time

import pytest

from aggregator.pipeline import postmortem
from aggregator.slurm import kernel
from aggregator.slurm.job import SlurmJob
from aggregator.slurm.kernel import kernel_lines
from aggregator.verdict import Status

NOW = 1_796_200_000.0
UPTIME_S = 500_000.0
KILLED = (
    "Memory cgroup out of memory: Killed process {pid} (python) total-vm:2267888kB, anon-rss:1407080kB, "
    "file-rss:100752kB, shmem-rss:0kB, UID:{uid} pgtables:3328kB oom_score_adj:0"
)
XID = "NVRM: Xid (PCI:0000:5d:00): 79, pid=41210, name=python, GPU has fallen off the bus."


def kill(path="/slurm/uid_1000/job_123/step_0/task_13", pid=4711, uid=1000, constraint="MEMCG", comm="python"):
    of = "global_oom" if constraint == "NONE" else f"oom_memcg={path.rpartition('/')[0]}"
    head = f"oom-kill:constraint=CONSTRAINT_{constraint},nodemask=(null),cpuset=/,mems_allowed=0,{of},task_memcg={path}"
    return f"{head},task={comm},pid={pid},uid={uid}"


def record(text, ago_s=10.0, priority=4):
    return f"{priority},{int(ago_s)},{int((UPTIME_S - ago_s) * 1e6)},-;{text}\n SUBSYSTEM=pci\n"


def job(**told):
    return SlurmJob(**{"id": 123, "uid": 1000, "node": "node-b", "start_s": int(NOW) - 3600} | told)


@pytest.fixture
def taken(tmp_path):
    def read(*records, of=None):
        source = tmp_path / "kmsg"
        source.write_text("".join(records))
        return kernel_lines(of or job(), NOW, str(source), lambda: UPTIME_S)

    return read


def texts(lines):
    return [line.partition(" kernel: ")[2] for line in lines]


# Kills


def test_a_kill_of_the_jobs_process_is_told_with_time_and_node(taken):
    lines = taken(
        record("python invoked oom-killer: gfp_mask=0xcc0", 10.1),
        record(kill()),
        record(KILLED.format(pid=4711, uid=1000)),
    )
    assert texts(lines) == [kill(), KILLED.format(pid=4711, uid=1000)]
    assert all(line.startswith("2026-12-02T08:26:30.000000Z node-b kernel: ") for line in lines)


@pytest.mark.parametrize(
    "path",
    [
        "/slurm/uid_1000/job_123/step_0/task_13",
        "/slurm/uid_1000/job_123/step_batch",
        "/system.slice/slurmstepd.scope/job_123/step_0/user/task_13",
        "/system.slice/node-b_slurmstepd.scope/job_123/step_0/user/task_13",
        "/slurm_node-b/uid_1000/job_123/step_0/task_1",
        "/slurm/uid_1000/job_123",
    ],
)
def test_the_control_groups_of_all_versions_name_the_job(taken, path):
    assert texts(taken(record(kill(path)))) == [kill(path)]


@pytest.mark.parametrize(
    "path",
    [
        "/slurm/uid_1000/job_1234/step_0/task_13",
        "/slurm/uid_1000/job_12/step_0/task_13",
        "/slurm/uid_1001/job_123/step_0/task_13",
        "/slurm_node-a/uid_1000/job_123/step_0/task_1",
        "/system.slice/node-a_slurmstepd.scope/job_123/step_0/user/task_13",
        "/slurm/uid_1000/job_7/step_0/user/task_0/job_123",
        "/slurm/uid_1000/job_7/x,task_memcg=/slurm/uid_1000/job_123",
        "/user.slice/user-1000.slice/session-3.scope",
        "/kubepods.slice/pod7.slice/cri-1.scope",
    ],
)
def test_a_kill_of_another_jobs_process_is_not_taken(taken, path):
    assert (
        taken(record(kill(path, uid=1001 if "pod" in path else 1000)), record(KILLED.format(pid=4711, uid=1000))) == []
    )


def test_the_name_of_a_process_forges_nothing(taken):
    for comm in (",pid=1,uid=1000", "/job_123", "x,uid=1000"):
        other = kill("/slurm/uid_1/job_7/step_0", 4712, 1, comm=comm)
        assert taken(record(other), record(f"{comm}[4711]: segfault at 8")) == []


def test_a_pid_that_another_job_uses_later_is_no_longer_the_jobs(taken):
    other = kill("/slurm/uid_1/job_7/step_0", 4711, 1)
    lines = taken(record(kill(), 20), record(other, 10), record(KILLED.format(pid=4711, uid=1), 10))
    assert texts(lines) == [kill()]


def test_without_groups_for_jobs_a_kill_counts_if_it_is_the_users_and_in_the_jobs_time(taken):
    ours, others = kill("/", constraint="NONE"), kill("/", 99, 1001, constraint="NONE")
    assert texts(taken(record(ours), record(others), record(KILLED.format(pid=99, uid=1001)))) == [ours]
    assert taken(record(ours, 3700)) == []
    assert taken(record(ours), of=job(uid=None)) == []


def test_old_kernels_name_the_job_first_and_the_process_after_it(taken):
    def told(number, pid):
        path = f"/slurm/uid_1000/job_{number}/step_0/task_11"
        return [
            f"Task in {path} killed as a result of limit of /slurm/uid_1000/job_{number}",
            "memory: usage 104857600kB, limit 104857600kB, failcnt 5120",
            f"Memory cgroup out of memory: Kill process {pid} (python) score 1912 or sacrifice child",
            f"Killed process {pid} (python) total-vm:182340000kB, anon-rss:98340000kB, file-rss:120000kB",
        ]

    ours, others = told(123, 41), told(124, 42)
    assert texts(taken(*map(record, ours + others))) == [ours[0], *ours[2:]]
    assert texts(taken(*map(record, others + ours))) == [ours[0], *ours[2:]]


# Hardware


@pytest.mark.parametrize(
    "text",
    [
        XID,
        "NVRM: GPU at PCI:0000:5d:00: GPU-5c1d7a5e-0000-0000-0000-000000000000",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Fatal, Link 37 egress non-posted PRIV error",
        "mce: [Hardware Error]: Machine check events logged",
        "{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 1",
        "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0",
        "Memory failure: 0x3f2a10: Killing python3:41210 due to hardware memory corruption",
        "pcieport 0000:5c:01.0: AER: Uncorrected (Fatal) error received: 0000:5d:00.0",
        "nvidia 0000:5d:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)",
        "mlx5_core 0000:17:00.0 ib0: Link down",
        "mlx5_core 0000:17:00.0: mlx5_health:123:(pid 0): device's health compromised - reached miss count",
        "watchdog: BUG: soft lockup - CPU#12 stuck for 22s! [python3:41210]",
        "INFO: task python3:41210 blocked for more than 120 seconds.",
        "nfs: server nas01 not responding, still trying",
        "LustreError: 167-0: scratch-MDT0000-mdc-ffff8f: This client was evicted by scratch-MDT0000",
        "EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm python: reading directory lblock 0",
    ],
)
def test_a_trouble_of_the_node_in_the_jobs_time_is_taken_and_none_outside_it(taken, text):
    assert texts(taken(record(text))) == [text]
    assert taken(record(text, 3700)) == []


@pytest.mark.parametrize(
    "text",
    ["usb 1-1: new high-speed USB device", 'audit: type=1400 comm="NVRM: Xid"', "python[3]: NVRM: Xid (PCI:0): 79, x",
     "eth0: renamed from veth1", "x" * 5000, "", "\udcff"],
)  # fmt: skip
def test_what_the_kernel_says_else_is_not_taken(taken, text):
    assert taken(record(text.encode("utf-8", "replace").decode())) == []


def test_what_a_process_wrote_into_the_kernels_log_is_no_word_of_the_kernel(taken):
    assert taken(record(XID, priority=12), record(kill(), priority=30)) == []


def test_where_slurm_does_not_tell_the_start_the_last_day_counts_for_what_names_the_job(taken):
    unknown = job(start_s=None)
    assert len(taken(record(kill(), 80_000), of=unknown)) == 1
    assert taken(record(kill(), 90_000), of=unknown) == []
    assert len(taken(record(XID, 500), of=unknown)) == 1
    assert taken(record(XID, 700), of=unknown) == []


def test_a_kill_in_an_earlier_run_of_a_requeued_job_is_not_taken(taken):
    again = job(start_s=None, restarts=1)
    assert taken(record(kill(), 900), of=again) == []
    assert len(taken(record(kill(), 500), of=again)) == 1
    assert taken(record(kill(), 900), of=job(start_s=int(NOW) - 800, restarts=1)) == []


# Bounds, and bad input


def test_a_flood_keeps_its_ends_and_does_not_hide_the_kill(taken):
    flood = [record(f"NVRM: Xid (PCI:0000:5d:00): 31, pid={n}, " + "x" * 3000, 3000 - n / 10) for n in range(5000)]
    lines = taken(*flood[:2500], record(kill(), 2750), *flood[2500:])
    assert kill() in texts(lines)
    assert len(lines) == kernel.MAX_LINES + 1
    assert "pid=0," in lines[0]
    assert "pid=4999," in lines[-1]
    assert sum(map(len, lines)) < 256 << 10


@pytest.mark.parametrize(
    "content",
    [b"", b"\n\n", b"garbage", b"4,1,2", b"\xff" * 100_000, b"4," * 50_000, b"9" * 9000 + b",1,1,-;NVRM: x\n"],
)
def test_a_damaged_log_gives_nothing(tmp_path, content):
    (tmp_path / "kmsg").write_bytes(content)
    assert kernel_lines(job(), NOW, str(tmp_path / "kmsg"), lambda: UPTIME_S) == []


def test_a_log_that_cannot_be_read_or_has_nothing_to_read_gives_nothing_and_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    started = time.monotonic()
    writer = os.open(tmp_path / "fifo", os.O_RDWR)
    for path in ("missing", "fifo", "."):
        assert kernel_lines(job(), NOW, str(tmp_path / path)) == []
    os.close(writer)
    assert time.monotonic() - started < 2


def test_a_log_without_an_end_is_given_up(monkeypatch):
    monkeypatch.setattr(kernel, "LIMIT_S", 0.2)
    started = time.monotonic()
    assert kernel_lines(job(), NOW, "/dev/zero") == []
    assert time.monotonic() - started < 2


@pytest.mark.skipif(not os.access(kernel.KMSG, os.R_OK), reason="the kernel's log is root's")
def test_the_real_kernel_log_is_read():
    try:
        os.close(os.open(kernel.KMSG, os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        pytest.skip("the kernel's log is closed to this container")
    records = list(kernel._records(kernel.KMSG))
    assert records
    assert all(0 <= at_s <= time.monotonic() + 3600 for at_s, _ in records)
    assert kernel_lines(job(id=4_000_000_000, uid=None, start_s=int(time.time()) + 60), time.time()) == []


# The verdict


def ranks_log(folder, *ends):
    lines = [
        f"{rank:2}: 2026-12-02 08:2{step}:00,000 INFO step {step} loss 2.0\n" for step in range(4) for rank in range(16)
    ]
    (folder / "slurm-123.out").write_text("".join(lines) + "".join(f"{line}\n" for line in ends))


def judged(folder, lines):
    (folder / "dmesg-node-b.log").write_text("".join(f"{line}\n" for line in lines))
    return postmortem([str(folder)])


@pytest.mark.parametrize("end", ["Killed", "Exited with exit code 137", "Out Of Memory"])
def test_the_verdict_says_that_the_kernel_killed_the_process_of_the_rank(tmp_path, taken, end):
    lines = taken(record(kill()), record(KILLED.format(pid=4711, uid=1000)))
    (tmp_path / "kmsg").unlink()
    ranks_log(
        tmp_path,
        f"srun: error: node-b: task 13: {end}",
        "srun: Terminating StepId=123.0",
        "slurmstepd: error: *** STEP 123.0 ON node-a CANCELLED AT 2026-12-02T08:26:31 ***",
        "srun: error: node-a: tasks 0-7: Terminated",
        "srun: error: node-b: tasks 8-12,14-15: Terminated",
    )
    verdict = judged(tmp_path, lines)
    failure = verdict.first_failure
    assert failure is not None
    assert (failure.status, failure.ranks, failure.hosts) == (Status.IDENTIFIED, (13,), ("node-b",))
    assert failure.kind == "host_oom"
    assert any(item.file == "dmesg-node-b.log" and "pid=4711" in item.text for item in failure.evidence)


def test_the_verdict_tells_which_process_the_kernel_killed(tmp_path, taken):
    lines = taken(record(kill()))
    (tmp_path / "kmsg").unlink()
    ranks_log(tmp_path, "srun: error: node-b: task 13: Killed")
    failure = judged(tmp_path, lines).first_failure
    assert failure is not None
    assert any("the kernel killed process 4711, rank 13's, for its memory" in reason for reason in failure.reasons)


@pytest.mark.parametrize("task", [5, 13], ids=["number on the node, before Slurm 23.11", "global number, since 23.11"])
@pytest.mark.parametrize("killed", ["12-13", "8-15"])
def test_of_several_killed_ranks_the_control_group_tells_which_ran_out_of_memory(tmp_path, taken, task, killed):
    lines = taken(record(kill(f"/slurm/uid_1000/job_123/step_0/task_{task}")))
    (tmp_path / "kmsg").unlink()
    rest = {"12-13": ["srun: error: node-b: tasks 8-11,14-15: Terminated"], "8-15": []}[killed]
    ends = [f"srun: error: node-b: tasks {killed}: Killed", "srun: error: node-a: tasks 0-7: Terminated", *rest]
    ranks_log(tmp_path, *ends)
    failure = judged(tmp_path, lines).first_failure
    assert failure is not None
    assert (failure.status, failure.ranks, failure.kind) == (Status.IDENTIFIED, (13,), "host_oom")


def test_where_the_number_of_the_control_group_may_mean_two_ranks_none_is_named_for_it(tmp_path, taken):
    lines = taken(record(kill("/slurm/uid_1000/job_123/step_0/task_5")))
    (tmp_path / "kmsg").unlink()
    ranks_log(
        tmp_path, "srun: error: node-b: tasks 1,3,5,7,9,11,13,15: Killed",
        "srun: error: node-a: tasks 0,2,4,6,8,10,12,14: Terminated",
    )  # fmt: skip
    failure = judged(tmp_path, lines).first_failure
    assert failure is not None
    assert failure.status is not Status.IDENTIFIED or len(failure.ranks) > 1


def test_without_the_kernels_word_the_kill_is_not_explained(tmp_path, taken):
    lines = taken(record(kill("/slurm/uid_1000/job_9/step_0/task_13")), record(XID, 4000))
    (tmp_path / "kmsg").unlink()
    ranks_log(tmp_path, "srun: error: node-b: task 13: Killed")
    failure = judged(tmp_path, lines).first_failure
    assert failure is not None
    assert failure.kind == "killed"
