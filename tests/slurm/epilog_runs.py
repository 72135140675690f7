"""Starts the epilog as Slurm does: a process of its own, with Slurm's environment and nothing else."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

IS_ROOT = os.geteuid() == 0
NOBODY, NO_ACCOUNT = 65534, 54321
COMMAND = [sys.executable, "-I", "-m", "aggregator", "slurm-epilog"]
FAULT = "".join(
    f"{rank}: [rank{rank}]: {line}\n"
    for rank in (1,)
    for line in (
        "Traceback (most recent call last):",
        '  File "/w/train.py", line 3, in main',
        "    step()",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.13 GiB.",
    )
)
HEALTHY = "epoch 1 done\nTraining finished successfully\n"
SECRET = "root-only-7f3a91"


def as_user(work, uid=NOBODY):
    """Does something in a process of the job's user."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            work()
        finally:
            os._exit(0)
    return pid


class Ended:
    """How an epilog ended; `said` is what it told the system's log, which goes to standard error as well."""

    def __init__(self, done, seconds):
        self.code, self.said, self.printed, self.seconds = done.returncode, done.stderr, done.stdout, seconds


class Node:
    """A job's folder, the admin's folders and settings. The job is `uid`'s, or the caller's who is not root."""

    def __init__(self, uid=NOBODY, disk="/tmp"):
        self.root = Path(tempfile.mkdtemp(prefix="epilog-", dir=disk))
        self.root.chmod(0o755)
        self.uid = uid if IS_ROOT else os.geteuid()
        self.home, self.reports, self.config_file = self.root / "home", self.root / "reports", self.root / "slurm.toml"
        self.home.mkdir(mode=0o700)
        self.reports.mkdir(mode=0o755)
        self.own(self.home)
        self.config()

    def remove(self):
        subprocess.run(["rm", "-rf", self.root], check=True)  # a tree that is too deep for Python is among them

    def own(self, path):
        if IS_ROOT:
            os.chown(path, self.uid, self.uid, follow_symlinks=False)

    def config(self, text="", *, kernel=False):
        self.config_file.write_text(f'report_dir = "{self.reports}"\nkernel = {str(kernel).lower()}\n{text}')
        self.config_file.chmod(0o644)

    def write(self, name, text):
        """A file of the job's user."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.parent != self.home:
            self.own(path.parent)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        self.own(path)
        return path

    def environment(self, **more):
        told = {
            "PWD": "/", "SLURMD_NODENAME": "node-1", "SLURM_NODELIST": "node-1", "SLURM_JOB_ID": "123",
            "SLURM_JOBID": "123", "SLURM_JOB_USER": "nobody" if self.uid == NOBODY else "", "SLURM_UID": str(self.uid),
            "SLURM_JOB_UID": str(self.uid), "SLURM_JOB_WORK_DIR": str(self.home), "SLURM_JOB_EXIT_CODE2": "1:0",
            "SLURM_SCRIPT_CONTEXT": "epilog_slurmd", "SLURM_JOB_STDIN": "/dev/null",
        }  # fmt: skip
        return {key: value for key, value in (told | more).items() if value}

    def epilog(self, *options, limit=60, **environment):
        """Run it; it must end."""
        began = time.monotonic()
        done = subprocess.run(
            [*COMMAND, "--config", str(self.config_file), *options], env=self.environment(**environment), cwd="/var",
            stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace", timeout=limit,
            check=False,
        )  # fmt: skip
        return Ended(done, time.monotonic() - began)

    def verdict(self, job_id=123):
        return json.loads((self.reports / f"denpex-{job_id}.json").read_text())

    def written(self):
        """All bytes that the epilog can have written anywhere here, and the names of what it wrote."""
        files = [path for path in self.root.rglob("*denpex*") if path.is_file() and not path.is_symlink()]
        return b"".join(path.read_bytes() for path in files), {path.name for path in files}
