"""What dumps of stacks tell: whose process it is, where its main thread stands and what that waits for."""

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.blocks import STACK_DUMP
from parsers.records import Frame, Role, Source, SourceKind
from parsers.stacks import Waits, is_own, show_stack, shown_frames, waits_for
from parsers.triage import LogTriage


def signals(text):
    triage = LogTriage(Source(0, "job.log", None, SourceKind.LOG))
    triage.feed(textwrap.dedent(text).lstrip("\n").encode())
    return triage.finish().signals


def stacks(text):
    return [signal for signal in signals(text) if signal.signature == STACK_DUMP]


def only(text):
    (signal,) = stacks(text)
    return signal


def innermost(signal):
    return shown_frames(signal.fields["stack"])[0]


SPY = """
    Process 7040: /home/mira/env/bin/python -u train.py --local-rank=1
    Python v3.10.14 (/home/mira/env/bin/python3.10)

    Thread 7040 (active): "MainThread"
        synchronize (torch/cuda/__init__.py:954)
        clip_and_step (train.py:144)
        <module> (train.py:330)
    Thread 7120 (idle): "Thread-1"
        wait (threading.py:324)
        run (tqdm/_monitor.py:60)
"""


def test_py_spy_tells_the_process_its_local_rank_and_where_its_main_thread_stands():
    signal = only(SPY)
    assert (signal.role, signal.kind, signal.exception) == (Role.STATE, None, None)
    assert (signal.fields["pid"], signal.fields["local_rank"]) == ("7040", "1")
    assert innermost(signal) == Frame("torch/cuda/__init__.py", 954, "synchronize")
    assert signal.fields["waits"] == "device"


def test_the_line_that_is_cited_is_the_innermost_of_the_programs_own():
    signal = only(SPY)
    assert (signal.line, signal.text) == (6, "    clip_and_step (train.py:144)")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("python train.py --local_rank 3", {"local_rank": "3"}),
        ("env RANK=11 LOCAL_RANK=3 python train.py", {"rank": "11", "local_rank": "3"}),
        ("python train.py --rank=11 --node_rank=1", {"rank": "11"}),
        ("python train.py --node_rank=1 --machine-rank 2", {}),
        ("python train.py --lora-rank 16 --low_rank=4", {}),
    ],
)
def test_ranks_are_taken_from_the_command_line(command, told):
    text = f'Process 7040: {command}\nPython v3.12.1 (/usr/bin/python3)\n\nThread 7040 (idle): "MainThread"\n'
    text += "    f (a.py:1)\n"
    assert {name: value for name, value in only(text).fields.items() if "rank" in name} == told


def test_dumps_that_follow_one_another_are_one_a_process():
    found = stacks(SPY + SPY.replace("7040", "7041").replace("rank=1", "rank=2"))
    assert [signal.fields["local_rank"] for signal in found] == ["1", "2"]


def test_threads_without_the_head_of_a_process_are_told_by_the_number_of_the_main_one():
    assert only("""
        Thread 0x1B80 (idle): "MainThread"
            acquire (filelock/_api.py:344)
            open_index (data/index.py:12)
    """).fields["pid"] == str(0x1B80)


def test_a_worker_of_a_dataloader_is_its_parents():
    signal = only("""
        Process 7301: python -u train.py
        Python v3.10.14 (/usr/bin/python3.10)
        Parent Process 7042: python -u train.py

        Thread 7301 (idle): "MainThread"
            acquire (filelock/_api.py:344)
            __getitem__ (data/pairs.py:88)
            _worker_loop (torch/utils/data/_utils/worker.py:308)
    """)
    assert (signal.fields["worker"], signal.fields["worker_pid"], signal.fields["pid"]) == ("1", "7301", "7042")


FAULTHANDLER = """
    Timeout (0:00:40)!
    Thread 0x00007f7c4be17b80 (most recent call first):
      File "/usr/lib/python3.11/threading.py", line 324 in wait
      File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

    Thread 0x00007f7c4be17700 (most recent call first):
      File "/opt/venv/lib/python3.11/site-packages/torch/autograd/graph.py", line 979 in _engine_run_backward
      File "/home/mira/fit.py", line 27 in main
      File "/home/mira/fit.py", line 61 in <module>
"""


def test_faulthandler_prints_the_main_thread_last():
    signal = only(FAULTHANDLER)
    assert (signal.fields["waits"], signal.line) == ("device", 8)
    assert innermost(signal).function == "_engine_run_backward"


def test_each_time_out_is_a_dump_of_its_own():
    assert [signal.line for signal in stacks(FAULTHANDLER + FAULTHANDLER.lstrip("\n"))] == [8, 17]


def test_the_same_thread_once_more_is_another_dump():
    text = FAULTHANDLER.replace("Timeout (0:00:40)!", "").rstrip() + "\n"
    assert len(stacks(text + text.lstrip("\n"))) == 2


def test_tagged_dumps_that_are_interleaved_are_told_apart():
    head = "[rank{}]: Thread 0x00007f7c4be17b8{} (most recent call first):"
    frame = '[rank{}]:   File "/home/mira/fit.py", line {} in main'
    text = "\n".join([head.format(0, 0), head.format(1, 1), frame.format(1, 31), frame.format(0, 30), ""])
    assert {(signal.rank, innermost(signal).line) for signal in stacks(text)} == {(0, 30), (1, 31)}


def test_lines_after_a_dump_are_read_as_ever():
    found = signals(FAULTHANDLER + "    ValueError: x\n    RuntimeError: CUDA error: device-side assert triggered\n")
    assert found[0].role is Role.STATE
    assert any(signal.kind == "cuda_device_assert" for signal in found)


def test_a_debuggers_first_thread_is_the_program():
    signal = only("""
        $ gdb -p 41211 -batch -ex 'thread apply all bt'
        Thread 2 (Thread 0x7f1c2a7fe700 (LWP 41250)):
        #0  0x00007f1c in epoll_wait () from /lib64/libc.so.6
        Thread 1 (Thread 0x7f1c2a7fe740 (LWP 41211)):
        #0  0x00007f1c in pthread_cond_wait@@GLIBC_2.3.2 () from /lib64/libpthread.so.0
        #1  0x00007f1d in ncclGroupEndInternal () from /opt/lib/libnccl.so.2
        #2  0x00007f1e in main ()
    """)
    assert (signal.fields["pid"], signal.fields["waits"]) == ("41211", "collective")


def test_two_processes_under_a_debugger_are_two_dumps():
    threads = (
        "Thread 2 (Thread 0x7f1c2a7fe700 (LWP {}9)):\n#0  0x0 in epoll_wait () from /lib64/libc.so.6\n"
        "Thread 1 (Thread 0x7f1c2a7fe740 (LWP {})):\n#0  0x0 in flock () from /lib64/libc.so.6\n"
    )
    found = stacks(threads.format(51, 51) + threads.format(52, 52))
    assert [signal.fields["pid"] for signal in found] == ["51", "52"]


def test_an_abort_by_a_watchdog_shows_where_the_process_was():
    found = signals("""
        Fatal Python error: Aborted

        Thread 0x00007f7c4be17700 (most recent call first):
          File "/home/mira/fit.py", line 27 in load
          File "/home/mira/fit.py", line 61 in <module>
    """)
    assert {signal.signature for signal in found} >= {STACK_DUMP, "end.py.abort"}


@pytest.mark.parametrize(
    ("frames", "waits"),
    [
        (["wait (torch/distributed/distributed_c10d.py:1)", "step (train.py:2)"], Waits.COLLECTIVE),
        (["_store_based_barrier (torch/distributed/distributed_c10d.py:1)"], Waits.STORE),
        (["get (threading.py:1)", "init_process_group (/x/site-packages/torch/distributed/distributed_c10d.py:1)"],
         Waits.STORE),
        (["backward (torch/autograd/__init__.py:1)"], Waits.DEVICE),
        (["forward (model.py:3)", "_engine_run_backward (torch/autograd/graph.py:9)"], Waits.OTHER),
        (["select (selectors.py:4)", "_try_get_data (torch/utils/data/dataloader.py:9)"], Waits.OTHER),
        (["read (torch/distributed/checkpoint/filesystem.py:4)"], Waits.OTHER),
        (["acquire (filelock/_api.py:4)", "open_index (index.py:1)"], Waits.OTHER),
        (["block_until_ready (jax/_src/array.py:4)", "train (main.py:1)"], Waits.DEVICE),
    ],
)  # fmt: skip
def test_what_a_thread_waits_for_is_told_by_the_frames_inside_the_programs_own(frames, waits):
    assert waits_for(shown_frames("\n".join(frames))) == waits


@pytest.mark.parametrize(
    ("file", "own"),
    [
        ("train.py", True), ("data/cache.py", True), ("/home/mira/fit.py", True), ("selectors.py", False),
        ("multiprocessing/queues.py", False), ("torch/optim/adam.py", False), ("<string>", False),
        ("/opt/venv/lib/python3.11/site-packages/x/y.py", False), ("/lib64/libc.so.6", False),
    ],
)  # fmt: skip
def test_frames_of_packages_and_of_python_are_not_the_programs_own(file, own):
    assert is_own(Frame(file, 3, "f")) is own


def test_frames_survive_their_field():
    frames = (Frame("a b.py", 3, "f"), Frame("/x (1)/y.py", 9, "<module>"))
    assert shown_frames(show_stack(frames)) == frames


_LINE = st.sampled_from(
    [*textwrap.dedent(SPY + FAULTHANDLER).split("\n"), "x", "", "#0  0x0 in f () at", "Process 1: "]
)


@given(st.lists(_LINE, max_size=40))
def test_no_order_of_lines_is_too_much(lines):
    for signal in stacks("\n".join(lines) + "\n"):
        assert signal.text
        assert shown_frames(signal.fields["stack"])
