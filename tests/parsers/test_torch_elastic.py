"""error.json of torchrun's workers, and tracebacks as text."""

import json
import textwrap
import traceback

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.records import Frame
from parsers.torch_elastic import MAX_MESSAGE, ErrorFile, parse_traceback, read_error_json


def parsed(text):
    return parse_traceback(textwrap.dedent(text).strip("\n").split("\n"))


PLAIN = """
Traceback (most recent call last):
  File "/home/ana/train.py", line 88, in <module>
    main()
  File "/home/ana/train.py", line 61, in main
    loss = step(batch["x"])
                ~~~~~^^^^^
KeyError: 'x'
"""


def test_a_plain_traceback_gives_type_message_and_frames_outermost_first():
    info = parsed(PLAIN)
    assert (info.type, info.message) == ("KeyError", "'x'")
    assert info.frames == (Frame("/home/ana/train.py", 88, "<module>"), Frame("/home/ana/train.py", 61, "main"))
    assert (info.root_type, info.root_message, info.outer_frames) == ("KeyError", "'x'", ())


@pytest.mark.parametrize(
    ("line", "name", "message"),
    [
        ("KeyboardInterrupt", "KeyboardInterrupt", ""),
        ("AssertionError:", "AssertionError", ""),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried", "torch.cuda.OutOfMemoryError", None),
        ("__main__.main.<locals>.Odd: x: y", "__main__.main.<locals>.Odd", "x: y"),
        ("Überlauf: é", "Überlauf", "é"),
    ],
)
def test_every_form_of_an_exception_line_is_read(line, name, message):
    info = parsed(f'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    x\n{line}')
    assert info.type == name
    assert info.message == (line.split(": ", 1)[1] if message is None else message)


@pytest.mark.parametrize("line", ["[rank0]: E", "some words: x", "http://a.b/c", "x=1: 2", " KeyError: 1", "a..b: c"])
def test_what_is_no_identifier_at_column_zero_is_no_exception_line(line):
    assert parse_traceback(["Traceback (most recent call last):", '  File "a.py", line 1, in f', line]) is None


def test_a_chain_keeps_the_last_exception_and_the_first_as_root():
    info = parsed("""
        Traceback (most recent call last):
          File "db.py", line 5, in read
            return rows[3]
        IndexError: list index out of range

        The above exception was the direct cause of the following exception:

        Traceback (most recent call last):
          File "t.py", line 9, in main
            read()
        data.ReadError: shard 3

        During handling of the above exception, another exception occurred:

        Traceback (most recent call last):
          File "t.py", line 20, in <module>
            main()
        RuntimeError: gave up
    """)
    assert (info.type, info.message) == ("RuntimeError", "gave up")
    assert (info.root_type, info.root_message) == ("IndexError", "list index out of range")
    assert info.frames == (Frame("db.py", 5, "read"),)
    assert info.outer_frames == (Frame("t.py", 20, "<module>"),)


def test_the_original_traceback_of_a_dataloader_worker_is_the_root():
    info = parsed("""
        Traceback (most recent call last):
          File "t.py", line 9, in main
            for batch in loader:
          File "/x/torch/_utils.py", line 794, in reraise
            raise exception
        KeyError: Caught KeyError in DataLoader worker process 0.
        Original Traceback (most recent call last):
          File "/x/torch/utils/data/_utils/worker.py", line 374, in _worker_loop
            data = fetcher.fetch(index)
          File "data.py", line 30, in __getitem__
            return rec["text"]
        KeyError: 'text'
    """)
    assert (info.type, info.message) == ("KeyError", "Caught KeyError in DataLoader worker process 0.")
    assert (info.root_message, info.frames[-1]) == ("'text'", Frame("data.py", 30, "__getitem__"))
    assert info.outer_frames[0] == Frame("t.py", 9, "main")


def test_a_pool_workers_quoted_traceback_is_the_root():
    info = parsed('''
        multiprocessing.pool.RemoteTraceback:
        """
        Traceback (most recent call last):
          File "pool.py", line 125, in worker
            result = (True, func(*args, **kwds))
        ZeroDivisionError: division by zero
        """

        The above exception was the direct cause of the following exception:

        Traceback (most recent call last):
          File "t.py", line 3, in <module>
            pool.map(f, [0])
        ZeroDivisionError: division by zero
    ''')
    assert (info.root_type, info.root_message) == ("ZeroDivisionError", "division by zero")
    assert info.frames == (Frame("pool.py", 125, "worker"),)
    assert info.outer_frames == (Frame("t.py", 3, "<module>"),)


def test_a_spawned_processs_traceback_inside_the_message_is_the_root():
    info = parsed("""
        Traceback (most recent call last):
          File "t.py", line 3, in <module>
            spawn(f)
        torch.multiprocessing.spawn.ProcessRaisedException:

        -- Process 1 terminated with the following error:
        Traceback (most recent call last):
          File "spawn.py", line 76, in _wrap
            fn(i, *args)
        ValueError: bad label 12
    """)
    assert info.type == "torch.multiprocessing.spawn.ProcessRaisedException"
    assert (info.root_type, info.root_message) == ("ValueError", "bad label 12")


def test_rays_remote_frames_without_a_header_lead_to_the_root():
    info = parsed("""
        Traceback (most recent call last):
          File "driver.py", line 10, in <module>
            ray.get(f.remote())
        ray.exceptions.RayTaskError(ZeroDivisionError): ray::f() (pid=123, ip=10.0.0.4)
          File "worker.py", line 5, in f
            1 / 0
        ZeroDivisionError: division by zero
    """)
    assert info.type == "ray.exceptions.RayTaskError(ZeroDivisionError)"
    assert (info.root_type, info.frames) == ("ZeroDivisionError", (Frame("worker.py", 5, "f"),))


def test_a_syntax_error_is_read_with_its_caret():
    info = parsed("""
        Traceback (most recent call last):
          File "t.py", line 1, in <module>
            import conf
          File "conf.py", line 4
            lr = = 3
                 ^
        SyntaxError: invalid syntax
    """)
    assert (info.type, info.message, info.frames[-1]) == ("SyntaxError", "invalid syntax", Frame("conf.py", 4, ""))


def test_a_message_of_several_lines_is_joined_and_its_cpp_frames_are_cut_off():
    info = parsed("""
        Traceback (most recent call last):
          File "t.py", line 3, in f
            x.cuda()
          [Previous line repeated 996 more times]
        RuntimeError: CUDA error: an illegal memory access was encountered
        CUDA kernel errors might be asynchronously reported

        Compile with `TORCH_USE_CUDA_DSA`
        Exception raised from c10_cuda_check_implementation at ../c10/cuda.cpp:43 (most recent call first):
        frame #0: c10::Error::Error(c10::SourceLocation) + 0x57 (0x7f in /x/libc10.so)
        Epoch: 3
    """)
    assert info.message.split("\n")[-1] == "Compile with `TORCH_USE_CUDA_DSA`"
    assert info.message.count("\n") == 3


def test_a_long_message_is_capped():
    lines = [*PLAIN.strip().split("\n"), *["y" * 100] * 10_000]
    assert len(parse_traceback(lines).message) <= MAX_MESSAGE


def test_a_block_indented_by_the_failure_box_is_read_up_to_its_end():
    info = parse_traceback(
        [
            "  traceback : Traceback (most recent call last):",
            '    File "/x/errors/__init__.py", line 346, in wrapper',
            "      return f(*args, **kwargs)",
            "  ValueError: bad label 12",
            "  second line",
            "============================================================",
            "KeyError: never",
        ]
    )
    assert (info.type, info.message) == ("ValueError", "bad label 12\nsecond line")


def test_another_writers_line_between_frames_is_not_the_exception():
    info = parsed("""
        Traceback (most recent call last):
          File "t.py", line 3, in main
        epoch: 12
          File "u.py", line 4, in g
            x
        ValueError: 3
    """)
    assert (info.type, len(info.frames)) == ("ValueError", 2)


def test_the_first_member_of_an_exception_group_is_the_root():
    info = parsed("""
          + Exception Group Traceback (most recent call last):
          |   File "t.py", line 3, in <module>
          |     raise group
          | ExceptionGroup: two (2 sub-exceptions)
          +-+---------------- 1 ----------------
            | Traceback (most recent call last):
            |   File "t.py", line 9, in one
            |     f()
            | ValueError: first
            +---------------- 2 ----------------
            | TypeError: second
            +------------------------------------
    """)
    assert (info.type, info.message) == ("ExceptionGroup", "two (2 sub-exceptions)")
    assert (info.root_type, info.root_message, info.frames) == ("ValueError", "first", (Frame("t.py", 9, "one"),))


def test_a_second_unrelated_traceback_ends_the_block():
    info = parse_traceback(PLAIN.strip().split("\n") + PLAIN.strip().replace("KeyError", "OSError").split("\n"))
    assert (info.type, info.root_type, len(info.frames)) == ("KeyError", "KeyError", 2)


@pytest.mark.parametrize(
    "text", ["", "ValueError: 3", "Traceback (most recent call last):", '  File "a", line 1, in f']
)
def test_no_traceback_gives_none(text):
    assert parse_traceback(text.split("\n")) is None


PIECES = st.sampled_from(
    [
        *PLAIN.split("\n"),
        "  + Exception Group Traceback (most recent call last):",
        "  | x",
        "  +-+---- 1 ----",
        '"""',
        "During handling of the above exception, another exception occurred:",
        "Original Traceback (most recent call last):",
        "RuntimeError: Traceback (most recent call last):",
        "a.B(C): d",
        "    +------",
        "frame #1: x",
        "  traceback : ",
    ]
)


@given(st.lists(PIECES | st.text(max_size=30), max_size=40))
def test_no_text_raises(lines):
    parse_traceback(lines)


class CustomError(Exception):
    pass


KINDS = st.sampled_from([ValueError, KeyError, CustomError, OSError, SystemExit, StopIteration, AssertionError])
WORDS = st.text(alphabet="abc xyz:.'()[]0-", max_size=40)
MESSAGES = st.lists(WORDS, min_size=0, max_size=3).map("\n".join)
LEAVES = st.tuples(KINDS, MESSAGES)
TREES = st.recursive(
    LEAVES, lambda inner: st.tuples(st.sampled_from(["cause", "context", "group"]), inner, inner), max_leaves=5
)


def raised(tree):
    """An exception with a traceback, from a description: a leaf, a chain of two, or a group of two."""
    if tree[0] == "group":
        members = [raised(part) for part in tree[1:]]
        error = BaseExceptionGroup("several", members)
        origin = members[0]
    elif len(tree) == 3:
        first, error = raised(tree[1]), raised(tree[2])
        innermost = error
        while (earlier := innermost.__cause__ or innermost.__context__) is not None:
            innermost = earlier
        if tree[0] == "cause":
            innermost.__cause__ = first
        else:
            innermost.__context__ = first
        return error
    else:
        error, origin = tree[0](tree[1]), None
    try:
        raise error  # noqa: TRY301 - to give it a traceback
    except BaseException as caught:  # noqa: BLE001 - any kind is built here
        caught.origin = origin
        return caught


def root_of(error):
    while (earlier := error.__cause__ or error.__context__) is not None:
        error = earlier
    return error if error.origin is None else root_of(error.origin)


def printed_name(error):
    module = type(error).__module__
    return type(error).__qualname__ if module == "builtins" else f"{module}.{type(error).__qualname__}"


@settings(max_examples=200)
@given(TREES)
def test_what_python_prints_of_a_random_chain_is_read_back(tree):
    error = raised(tree)
    info = parse_traceback("".join(traceback.format_exception(error)).split("\n"))
    assert info.type == printed_name(error)
    assert info.root_type == printed_name(root_of(error))
    assert info.frames[-1].function == "raised"


def error_json(**inner):
    return json.dumps({"message": inner}).encode()


def test_form_a_is_read_with_its_stack_and_time():
    extra = {"py_callstack": PLAIN.strip(), "timestamp": "1927000000"}
    got = read_error_json(error_json(message="KeyError: 'x'", extraInfo=extra, errorCode=3))
    assert (got.type, got.message, got.timestamp_ns, got.error_code) == ("KeyError", "'x'", 1927000000 * 10**9, 3)
    assert got.exception.frames[-1].function == "main"


def test_a_stack_without_its_exception_line_is_completed_from_the_message():
    stack = 'Traceback (most recent call last):\n  File "train.py", line 7, in main\n'
    got = read_error_json(error_json(message="ValueError: bad\nlabel", extraInfo={"py_callstack": stack}))
    assert (got.exception.type, got.exception.message) == ("ValueError", "bad\nlabel")


def test_form_b_is_read_with_the_time_beside_the_message():
    data = b'{"message": "Signal 9 (SIGKILL) received by PID 4", "timestamp": 1927000000}'
    assert read_error_json(data) == ErrorFile(
        "", "Signal 9 (SIGKILL) received by PID 4", None, 1927000000 * 10**9, None
    )


@pytest.mark.parametrize("stamp", ["soon", "-3", -3, True, None, [], 1e300, "9" * 11, "٣"])
def test_a_time_that_is_none_is_left_out(stamp):
    got = read_error_json(error_json(message="E: x", extraInfo={"timestamp": stamp}))
    assert (got.type, got.timestamp_ns) == ("E", None)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00" * 64,
        b"[]",
        b"{}",
        b'{"message": 3}',
        b'{"message": {"message": []}}',
        b'{"message": "a',
        b"[" * 10**6,
        b'{"a":' * 10**5,
        b'{"message": ' + b"9" * 10**5 + b"}",
        b" " * ((16 << 20) + 1),
    ],
    ids=lambda data: f"{data[:12]!r}x{len(data)}",
)
def test_a_damaged_file_gives_none(data):
    assert read_error_json(data) is None


@given(st.binary(max_size=200))
def test_no_bytes_raise(data):
    read_error_json(data)
