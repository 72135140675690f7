"""What tracebacks, fault-handler dumps and torchrun's failure box say."""

import textwrap

import pytest
from block_texts import exceptions, only, signals
from hypothesis import given
from hypothesis import strategies as st

from parsers.blocks import PLAIN_EXCEPTION, exception_signal
from parsers.lexicon import default_lexicon
from parsers.multiline import Place
from parsers.records import ExceptionInfo, Frame, Role

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.15 GiB "
    "of which 1.20 GiB is free."
)


def test_an_exception_that_no_format_knows_is_a_fault_of_the_program():
    signal = only("""
        x
        Traceback (most recent call last):
          File "/w/t.py", line 9, in <module>
            f()
        ZeroDivisionError: division by zero
    """)
    assert (signal.signature, signal.role, signal.kind, signal.layer) == (
        PLAIN_EXCEPTION, Role.ROOT, "python_exception", "software",
    )  # fmt: skip
    assert (signal.source, signal.line, signal.text) == (7, 5, "ZeroDivisionError: division by zero")
    assert signal.exception.frames == (Frame("/w/t.py", 9, "<module>"),)
    assert signal.fields["exception"] == "ZeroDivisionError"


def test_an_exception_that_a_format_knows_is_what_the_format_says():
    signal = only(f"""
        Traceback (most recent call last):
          File "/w/t.py", line 9, in <module>
            f()
        {OOM}
    """)
    assert (signal.kind, signal.role, signal.fields["need"]) == ("cuda_oom", Role.ROOT, "2.00 GiB")


def test_a_chain_is_judged_by_its_first_exception_and_cites_its_line():
    signal = only(f"""
        Traceback (most recent call last):
          File "/w/t.py", line 9, in step
            f()
        {OOM}

        During handling of the above exception, another exception occurred:

        Traceback (most recent call last):
          File "/w/t.py", line 20, in <module>
            save()
        OSError: [Errno 28] No space left on device
    """)
    assert (signal.kind, signal.line) == ("cuda_oom", 4)
    assert signal.fields["exception"] == "torch.OutOfMemoryError"
    assert (signal.exception.type, signal.exception.root_type) == ("OSError", "torch.OutOfMemoryError")


def test_where_the_first_exception_is_of_no_known_kind_a_later_one_may_tell_it():
    signal = only("""
        Traceback (most recent call last):
          File "/w/t.py", line 9, in save
            f()
        StopIteration

        The above exception was the direct cause of the following exception:

        Traceback (most recent call last):
          File "/w/t.py", line 20, in <module>
            save()
        OSError: [Errno 28] No space left on device
    """)
    assert (signal.kind, signal.exception.root_type) == ("disk_full", "StopIteration")


def test_the_same_exception_raised_twice_is_cited_where_it_came_first():
    signal = only("""
        Traceback (most recent call last):
          File "/w/t.py", line 9, in g
            f()
        ValueError: first

        During handling of the above exception, another exception occurred:

        Traceback (most recent call last):
          File "/w/t.py", line 20, in <module>
            g()
        ValueError: second
    """)
    assert (signal.line, signal.exception.root_message, signal.exception.message) == (4, "first", "second")


WORKER = """
    Traceback (most recent call last):
      File "/w/t.py", line 3, in main
        for x in loader:
    KeyError: Caught KeyError in DataLoader worker process 2.
    Original Traceback (most recent call last):
      File "/o/torch/utils/data/_utils/worker.py", line 5, in _worker_loop
        data = fetcher.fetch(index)
      File "/w/data.py", line 48, in __getitem__
        y
    KeyError: 'caption'

    bye
"""


def test_what_a_data_loader_s_worker_raised_is_a_fault_of_the_data():
    signal = only(WORKER)
    assert (signal.kind, signal.fields["worker"], signal.fields["exception"]) == ("data_error", "1", "KeyError")
    assert (signal.text, signal.exception.frames[-1].file) == ("KeyError: 'caption'", "/w/data.py")


def test_memory_that_runs_out_in_a_data_loader_s_worker_stays_what_it_is():
    assert only(WORKER.replace("KeyError: 'caption'", OOM)).kind == "cuda_oom"


def test_the_process_where_a_ray_task_failed_is_told():
    signal = only("""
        Traceback (most recent call last):
          File "main.py", line 3, in <module>
            ray.get(x)
        ray.exceptions.RayTaskError(ValueError): ray::Runner.run() (pid=331, ip=10.1.9.20, actor_id=c07d)
          File "r.py", line 7, in run
            self.workers.step()
        ray.exceptions.RayTaskError(ValueError): ray::Worker.step() (pid=812, ip=10.1.9.21, actor_id=99aa)
          File "w.py", line 70, in step
            raise ValueError("bad step")
        ValueError: bad step
    """)
    assert (signal.fields["pid"], signal.fields["ip"]) == ("812", "10.1.9.21")
    assert (signal.fields["exception"], signal.exception.frames[-1].file) == ("ValueError", "w.py")


@pytest.mark.parametrize("lead", [
    "Exception ignored in: <function Pool.__del__ at 0x7f3a>",
    "Exception ignored in atexit callback: <function _exit_function at 0x7f>",
    "--- Logging error ---",
    "Error in atexit._run_exitfuncs:",
])  # fmt: skip
def test_what_python_ignored_is_no_failure(lead):
    signal = only(f"""
        {lead}
        Traceback (most recent call last):
          File "/w/t.py", line 9, in __del__
            f()
        AttributeError: 'NoneType' object has no attribute 'close'
    """)
    assert signal.role is Role.CONTEXT


def test_an_exception_in_a_thread_is_marked():
    text = """
        Exception in thread Thread-7 (_upload_loop):
        Traceback (most recent call last):
          File "/o/threading.py", line 1045, in _bootstrap_inner
            self.run()
        ConnectionError: lost
    """
    signal = only(text)
    assert (signal.fields["thread"], signal.role) == ("1", Role.ROOT)
    assert signal.fields["lead"] == "Exception in thread Thread-7 (_upload_loop):"
    assert "thread" not in only(text.replace("Exception in thread Thread-7 (_upload_loop):", "hello")).fields


def test_interleaved_tracebacks_of_tagged_ranks_are_told_apart():
    signal0, signal1 = exceptions("""
        [rank0]: Traceback (most recent call last):
        [rank1]: Traceback (most recent call last):
        [rank0]:   File "a.py", line 1, in f
        [rank1]:   File "b.py", line 2, in g
        [rank1]:     g()
        [rank0]: ValueError: of rank 0
        [rank1]: TypeError: of rank 1
    """)
    assert (signal0.rank, signal0.text, signal0.exception.frames) == (
        0,
        "ValueError: of rank 0",
        (Frame("a.py", 1, "f"),),
    )
    assert (signal1.rank, signal1.text, signal1.exception.frames) == (
        1,
        "TypeError: of rank 1",
        (Frame("b.py", 2, "g"),),
    )


def test_two_untagged_tracebacks_one_after_the_other_are_two_faults():
    first, second = exceptions("""
        Traceback (most recent call last):
          File "a.py", line 1, in f
        ValueError: a
        Traceback (most recent call last):
          File "b.py", line 2, in g
        TypeError: b
    """)
    assert (first.text, second.text) == ("ValueError: a", "TypeError: b")


LONG = """
Traceback (most recent call last):
  File "a.py", line 1, in f
    x()
IndexError: list index out of range

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "b.py", line 2, in g
RuntimeError: Caught KeyError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "c.py", line 3, in h
KeyError: 'k'
Fatal Python error: Aborted

Current thread 0x00007ff5691feb80 (most recent call first):
  File "/w/data.py", line 48 in __getitem__
"""


@pytest.mark.parametrize("size", range(0, len(LONG), 7))
def test_a_file_may_end_anywhere_in_a_traceback(size):
    for signal in exceptions(LONG[:size], dedent=False):
        assert signal.exception.type


DUMP = """
    step 12
    Fatal Python error: Segmentation fault

    Thread 0x00007ff5691feb81 (most recent call first):
      File "/o/threading.py", line 324 in wait

    Current thread 0x00007ff5691feb80 (most recent call first):
      File "/w/data.py", line 48 in __getitem__
      File "/w/train.py", line 123 in main

    Extension modules: numpy, torch._C (total: 2)
    bye
"""


def test_a_fault_handler_s_dump_is_one_fault_with_the_frames_of_the_thread_that_crashed():
    signal = only(DUMP)
    assert (signal.kind, signal.role, signal.line) == ("segfault", Role.ROOT, 2)
    assert signal.exception.frames == (Frame("/w/train.py", 123, "main"), Frame("/w/data.py", 48, "__getitem__"))


def test_a_fault_handler_s_dump_of_one_thread_has_its_frames_too():
    signal = only("""
        Fatal Python error: Aborted

        Stack (most recent call first):
          File "/w/kv.py", line 33 in lookup
          File "/w/data.py", line 48 in __getitem__
    """)
    assert signal.kind == "abort"
    assert [frame.function for frame in signal.exception.frames] == ["__getitem__", "lookup"]


def test_dumps_of_two_tagged_ranks_that_are_interleaved_are_told_apart():
    lines = textwrap.dedent(DUMP).strip().split("\n")
    mixed = "".join(f"[rank0]: {line}\n[rank1]: {line.replace('train.py', 'eval.py')}\n" for line in lines)
    found = exceptions(mixed)
    assert [(s.rank, s.exception.frames[0].file) for s in found] == [(0, "/w/train.py"), (1, "/w/eval.py")]


def test_advice_in_a_message_says_nothing_about_the_exception():
    info = ExceptionInfo(
        "ValueError", "bad\nset CUDA_LAUNCH_BLOCKING=1", (), "ValueError", "bad\nset CUDA_LAUNCH_BLOCKING=1"
    )
    signal = exception_signal(info, default_lexicon().match, 0, Place(1, 0))
    assert (signal.kind, signal.role) == ("python_exception", Role.ROOT)


text = st.text(st.characters(codec="utf-8"), max_size=80)


@given(type_=text, message=text, root=text, lead=text)
def test_any_exception_makes_a_signal(type_, message, root, lead):
    info = ExceptionInfo(type_, message, (), root, message)
    signal = exception_signal(info, default_lexicon().match, 0, Place(1, 0), lead=lead)
    assert signal.kind
    assert "\n" not in signal.text


def test_what_a_loader_s_worker_met_is_told_by_its_own_exception_not_by_the_loader_s():
    text = (
        "RuntimeError: Caught OSError in DataLoader worker process 1.\n"
        "Original Traceback (most recent call last):\n"
        '  File "/opt/env/torch/utils/data/_utils/worker.py", line 309, in _worker_loop\n'
        "    data = fetcher.fetch(index)\n"
        "OSError: [Errno 107] Transport endpoint is not connected: '/mnt/shards/0017.tar'\n"
    )
    head = 'Traceback (most recent call last):\n  File "/w/train.py", line 9, in main\n    batch = next(loader)\n'
    (signal,) = [s for s in signals(head + text) if s.exception]
    assert (signal.kind, signal.layer, signal.fields["worker"]) == ("storage_io", "storage", "1")
