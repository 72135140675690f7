"""What jobs print, in the wordings of PyTorch 2.6 to 2.9 (2.3 where ranks print no stamps), torchrun and Slurm."""

from __future__ import annotations

TORCH = "/opt/venv/lib/python3.11/site-packages/torch"
MAIN = '  File "/workspace/tinylm/train.py", line 160, in <module>\n    main()\n'
STEP = '  File "/workspace/tinylm/train.py", line 135, in main\n'
BACKWARD = f"""{STEP}    loss.backward()
  File "{TORCH}/_tensor.py", line 623, in backward
    torch.autograd.backward(
  File "{TORCH}/autograd/__init__.py", line 347, in backward
    _engine_run_backward(
  File "{TORCH}/autograd/graph.py", line 823, in _engine_run_backward
    return Variable._execution_engine.run_backward(  # Calls into the C++ engine to run the backward pass
"""
HEAD = "Traceback (most recent call last):\n"


def tagged(rank: int, text: str) -> str:
    """An uncaught exception as PyTorch's hook prints it: every line that is not empty has the rank."""
    return "\n".join(f"[rank{rank}]: {line}" if line else "" for line in text.split("\n"))


def cuda_oom(gpu: int) -> str:
    """A CUDA out-of-memory traceback."""
    return (
        f'{HEAD}{MAIN}  File "/workspace/tinylm/train.py", line 131, in main\n    loss = model(batch)\n'
        '  File "/workspace/tinylm/model.py", line 88, in forward\n    scores = q @ k.transpose(-2, -1)\n'
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.66 GiB. GPU {gpu} has a total capacity of"
        " 79.15 GiB of which 5.91 GiB is free. Including non-PyTorch memory, this process has 73.23 GiB memory in use."
        " Of the allocated memory 64.07 GiB is allocated by PyTorch, and 7.70 GiB is reserved by PyTorch but"
        " unallocated. If reserved but unallocated memory is large try setting"
        " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory"
        " Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
    )


def key_error() -> str:
    """A program's own mistake while it cleans up."""
    return (
        f'{HEAD}{MAIN}  File "/workspace/tinylm/train.py", line 151, in main\n    report(stats)\n'
        '  File "/workspace/tinylm/report.py", line 31, in report\n    norm = stats["grad_norm"]\n'
        "KeyError: 'grad_norm'"
    )


def loader_error(worker: int) -> str:
    """An exception of a DataLoader worker, raised again by its rank."""
    return (
        f'{HEAD}{MAIN}  File "/workspace/tinylm/train.py", line 126, in main\n    batch = next(batches)\n'
        f'  File "{TORCH}/utils/data/dataloader.py", line 708, in __next__\n    data = self._next_data()\n'
        f'  File "{TORCH}/_utils.py", line 733, in reraise\n    raise exception\n'
        f"ValueError: Caught ValueError in DataLoader worker process {worker}.\nOriginal {HEAD}"
        f'  File "{TORCH}/utils/data/_utils/worker.py", line 349, in _worker_loop\n    data = fetcher.fetch(index)\n'
        '  File "/workspace/tinylm/data.py", line 48, in __getitem__\n    return int(record["label"])\n'
        "ValueError: invalid literal for int() with base 10: 'n/a'\n"
    )


def gloo_closed(address: str, port: int, *, reset: bool) -> str:
    """What gloo raises when a peer's process ends."""
    what = (
        f"Read error [{address}]:{port}: Connection reset by peer"
        if reset
        else f"Connection closed by peer [{address}]:{port}"
    )
    line = 537 if reset else 553
    return (
        f"{HEAD}{MAIN}{BACKWARD}RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:{line}] {what}."
        " This is typically caused by a remote worker crashing. Check the logs of the remote worker before reporting"
        " an error. GLHF! 🏖️"
    )


def work(seq: int, limit_ms: int = 600_000) -> str:
    """A collective as the watchdog names it."""
    return f"WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=26214400, NumelOut=26214400, Timeout(ms)={limit_ms})"


REMOTE = "NCCL error: remote process exited or there was a network error, NCCL version 2.21.5"


def remote_detail(host: str, port: int) -> str:
    """The lines below an NCCL remote error."""
    return (
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
        f"Last error:\nsocketProgress: Connection closed by remote peer {host}<{port}>"
    )


TEARDOWN = (
    "Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU"
    " operations might run on corrupted/incomplete data."
)
DOWN = "To avoid data inconsistency, we are taking the entire process down."
DUMP_ADVICE = (
    "This is most likely caused by incorrect usages of collectives, e.g., wrong sizes used across ranks, the order of"
    " collectives is not same for all ranks or the scheduled collective, for some reason, didn't run. Additionally,"
    " this can be caused by GIL deadlock or other reasons such as network errors or bugs in the communications library"
    " (e.g. NCCL), etc. "
)
NO_STACK = (
    "Stack trace of the failed collective not found, potentially because FlightRecorder is disabled. You can enable it"
    " by setting TORCH_NCCL_TRACE_BUFFER_SIZE to a non-zero value."
)
SIGNALS = {-9: "SIGKILL", -6: "SIGABRT", -15: "SIGTERM", -11: "SIGSEGV"}
ENDS = {1: "Exited with exit code 1", -9: "Killed", -6: "Aborted (core dumped)", -15: "Terminated"}
CHILD_FAILED = f"""{HEAD}  File "/opt/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
             ^^^^^^
  File "{TORCH}/distributed/elastic/multiprocessing/errors/__init__.py", line 355, in wrapper
    return f(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^
  File "{TORCH}/distributed/run.py", line 918, in main
    run(args)
  File "{TORCH}/distributed/launcher/api.py", line 269, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"""
STORE_LOST = f"""{HEAD}  File "{TORCH}/distributed/elastic/rendezvous/\
c10d_rendezvous_backend.py", line 117, in _call_store
    return getattr(self._store, store_op)(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. \
Did the remote server shutdown or crash?

The above exception was the direct cause of the following exception:

{HEAD}  File "/opt/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
             ^^^^^^
torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: \
The connection to the C10d store has failed. See inner exception for details."""
NOISE = f"""{HEAD}  File "/workspace/tinylm/data.py", line 71, in decode
    return json.loads(raw)
  File "/usr/lib/python3.11/json/decoder.py", line 355, in raw_decode
    raise JSONDecodeError("Expecting value", s, err.value) from None
json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"""
