"""Real torchrun jobs on the CPU: what every rank trains, how it goes wrong, and the launcher around it.

As a script, this is the training program that torchrun starts. It does what its plan says once a file, the go-ahead,
exists: so a test can make sure that somebody watches before anything happens.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

WORLD_SIZE = 4
STEP_S = 0.05
MIN_STEPS = 20
MAX_STEPS = 1_000
"""Ends a job whose go-ahead never comes."""
COLLECTIVE_TIMEOUT_S = 8


class Fault(StrEnum):
    """What one rank does at the start of a step."""

    RAISE = "raise"
    ALLOCATE = "allocate"
    """Ask for more memory than any machine can map."""
    KILL = "kill"
    """End as by `kill -9`: nothing in a log tells who sent the signal."""
    HANG = "hang"
    """Stay away from the collective until long after the others gave up."""


@dataclass(frozen=True, slots=True)
class Job:
    """One job. `faults` tells by attempt (from 0) and rank what goes wrong; `options` and `env` are torchrun's."""

    faults: dict[tuple[int, int], Fault] = field(default_factory=dict)
    options: tuple[str, ...] = ("--redirects", "3")
    env: dict[str, str] = field(default_factory=dict)
    nodes: int = 1


OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Keeps an attempt from reading the addresses of the one before it: https://github.com/pytorch/pytorch/issues/167288."""

JOBS = {
    # Looks after its ranks each 3 s only, so that there is something to be told before it ends the job itself.
    "exception": Job({(0, 2): Fault.RAISE}, ("--redirects", "3", "--monitor-interval", "3")),
    "out of memory": Job({(0, 1): Fault.ALLOCATE}, ("--tee", "3")),
    "killed": Job({(0, 3): Fault.KILL}, ("--tee", "3")),
    "hang": Job({(0, 2): Fault.HANG}, env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}),
    "healthy": Job(),
    "restarted and well": Job({(0, 1): Fault.RAISE}, ("--redirects", "3", "--max-restarts", "1"), OWN_STORE),
    "restarted in vain": Job(
        {(0, 1): Fault.RAISE, (1, 3): Fault.KILL}, ("--tee", "3", "--max-restarts", "1"), OWN_STORE
    ),
    "two nodes": Job({(0, 3): Fault.RAISE}, nodes=2),
}


@contextmanager
def running(job: Job, folder: Path, go_ahead: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The job's launchers, one a node, writing into the folder; none of them runs any more afterwards."""
    rendezvous = ["--standalone"]
    if job.nodes > 1:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        rendezvous = ["--nnodes", str(job.nodes), "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}"]
        rendezvous += ["--rdzv-id", "train", "--local-addr", "127.0.0.1"]
    plan = [f"{attempt}:{rank}:{fault}" for (attempt, rank), fault in job.faults.items()]
    with ExitStack() as stack:
        launchers = []
        for node in range(job.nodes):
            home = folder / f"node{node}" if job.nodes > 1 else folder
            home.mkdir(exist_ok=True)
            command = [sys.executable, "-m", "torch.distributed.run", *rendezvous, *job.options]
            command += ["--nproc-per-node", str(WORLD_SIZE // job.nodes), "--log-dir", str(home / "logs")]
            command += [__file__, str(go_ahead), *plan]
            log = stack.enter_context((home / "torchrun.log").open("wb"))
            env = {**os.environ, **job.env}
            launcher = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT)
            # Called in reverse order: asked to end, it ends its ranks too.
            stack.callback(launcher.wait)
            stack.callback(launcher.terminate)
            launchers.append(launcher)
        yield launchers


def train(go_ahead: Path, faults: dict[tuple[int, int], Fault]) -> None:
    """Train a small model until the go-ahead, then do what is planned for this attempt: a fault, or a good end."""
    import torch  # noqa: PLC0415 - the tests import this module where there is no torch
    import torch.distributed as dist  # noqa: PLC0415

    dist.init_process_group("gloo", timeout=timedelta(seconds=COLLECTIVE_TIMEOUT_S))
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    fault = faults.get((attempt, dist.get_rank()))
    ends_well = all(attempt != planned for planned, _ in faults)
    model = torch.nn.Linear(64, 1)
    for step in range(MAX_STEPS):
        time.sleep(STEP_S)
        is_due = step >= MIN_STEPS and go_ahead.exists()
        if is_due and fault:
            strike(fault)
        loss = model(torch.randn(32, 64)).square().mean()
        print(f"step {step} loss {loss.item():.4f}", flush=True)  # noqa: T201 - what a training program does
        # By hand: torch.optim brings in the compiler, which takes as long as all the rest of torch.
        for parameter, gradient in zip(model.parameters(), torch.autograd.grad(loss, model.parameters()), strict=True):
            dist.all_reduce(gradient)
            parameter.data -= 1e-3 * gradient
        agreed = torch.tensor(is_due and ends_well, dtype=torch.int32)
        dist.all_reduce(agreed, dist.ReduceOp.MAX)
        if agreed:
            break
    print("training finished", flush=True)  # noqa: T201
    dist.destroy_process_group()


def strike(fault: Fault) -> None:
    """Go wrong.

    Raises:
        ValueError: For `RAISE`.
        RuntimeError: For `ALLOCATE`, from torch.
    """
    import torch  # noqa: PLC0415 - see train

    match fault:
        case Fault.RAISE:
            raise ValueError("label 1000 is out of range for 1000 classes")
        case Fault.ALLOCATE:
            torch.empty(1 << 50, dtype=torch.uint8)
        case Fault.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        case Fault.HANG:
            time.sleep(4 * COLLECTIVE_TIMEOUT_S)


if __name__ == "__main__":
    planned = [word.split(":") for word in sys.argv[2:]]
    train(Path(sys.argv[1]), {(int(attempt), int(rank)): Fault(fault) for attempt, rank, fault in planned})
