"""Tracebacks that log records carry are read as any traceback, whoever wrote the record."""

import json

import pytest

from parsers.records import Known, Role, Source, SourceKind, StampQuality
from parsers.triage import LogTriage

HEAD = "Traceback (most recent call last):"
FRAMES = '  File "/w/t.py", line 9, in <module>\n    f()\n  File "/w/t.py", line 4, in f\n    return x["k"]\n'
TRACE = f"{HEAD}\n{FRAMES}KeyError: 'k'"
LOGURU = (
    f'2031-02-03 04:05:06.789 | ERROR | __main__:<module>:9 - failed\n{HEAD}\n\n> File "/w/t.py", line 9, in <module>\n'
    "    f()\n    └ <function f at 0x7f>\n\n"
    '  File "/w/t.py", line 4, in f\n    return x["k"]\n           └ {}\n\nKeyError: \'k\'\n'
)
STACK = [
    {"filename": "/w/t.py", "lineno": 9, "name": "<module>"},
    {"filename": "/w/t.py", "lineno": 4, "name": "f", "line": 'return x["k"]'},
]
WHO = {"timestamp": "2031-02-03T04:05:06.789Z", "rank": 3, "hostname": "node-b"}


def signals(*records):
    triage = LogTriage(Source(0, "job.log", None, SourceKind.LOG))
    triage.feed("".join(json.dumps(record) + "\n" for record in records).encode())
    return triage.finish().signals


def exceptions(*records):
    return [signal for signal in signals(*records) if signal.exception is not None]


@pytest.mark.parametrize(
    "told",
    [
        {"levelname": "CRITICAL", "message": TRACE},
        {"levelname": "ERROR", "message": f"step failed\r\n{TRACE}\r\n"},
        {"levelname": "ERROR", "message": "failed", "exc_info": TRACE},
        {"level": "error", "event": "failed", "exception": TRACE},
        {"level": "error", "event": "failed", "exception": [
            {"exc_type": "KeyError", "exc_value": "'k'", "is_cause": False, "frames": STACK}]},
        {"level": "CRITICAL", "msg": "unhandled", "exc_type": "KeyError", "traceback": TRACE},
        {"level": "CRITICAL", "exc_type": "KeyError", "exc_message": "'k'", "traceback": FRAMES.rstrip()},
        {"log.level": "error", "message": "failed", "error": {"type": "KeyError", "stack_trace": TRACE}},
        {"log.level": "error", "message": "failed", "error.type": "KeyError", "error.stack_trace": TRACE},
        {"status": "error", "level": "ERROR", "message": "failed", "error.stack": TRACE},
        {"severity": "ERROR", "jsonPayload": {"message": TRACE}},
        {"severity": "ERROR", "textPayload": TRACE},
        {"stream": "stderr", "line": TRACE},
        {"severity": "ERROR", "msg": "uncaught exception", "exc": TRACE},
        {"text": LOGURU, "record": {"message": "failed", "level": {"name": "ERROR"}, "extra": {"rank": 3},
            "exception": {"type": "KeyError", "value": "'k'", "traceback": True}}},
    ],
)  # fmt: skip
def test_a_traceback_in_a_record_is_the_ranks_own_with_its_host_and_time(told):
    (signal,) = exceptions(WHO | told)
    assert (signal.role, signal.rank, signal.rank_how) == (Role.ROOT, 3, Known.PREFIX)
    assert (signal.exception.type, signal.exception.message) == ("KeyError", "'k'")
    assert [frame.function for frame in signal.exception.frames] == ["<module>", "f"]
    if "record" not in told:
        assert (signal.host, signal.quality) == ("node-b", StampQuality.OWN)


def test_a_record_that_tells_only_what_was_raised_is_an_exception_too():
    (signal,) = exceptions(WHO | {"level": "CRITICAL", "msg": "unhandled", "exc_type": "OddError", "exc_message": "no"})
    assert (signal.exception.type, signal.exception.message, signal.rank) == ("OddError", "no", 3)


def test_a_chain_of_exceptions_is_judged_by_its_first():
    chain = [
        {"exc_type": "RuntimeError", "exc_value": "later", "frames": STACK},
        {"exc_type": "KeyError", "exc_value": "'k'", "frames": STACK},
    ]
    (signal,) = exceptions(WHO | {"level": "error", "event": "failed", "exception": chain})
    assert (signal.exception.root_type, signal.exception.type) == ("KeyError", "RuntimeError")


def test_a_record_is_complete_in_itself():
    told = {"level": "ERROR", "message": f"{HEAD}\n{FRAMES.rstrip()}"}
    lost, own = (WHO | told, WHO | {"level": "ERROR", "message": TRACE, "rank": 4})
    assert [signal.rank for signal in exceptions(lost, own)] == [4]


def test_lines_of_a_record_keep_their_own_tags():
    text = "\n".join(f"[rank5]: {line}" for line in TRACE.split("\n"))
    (signal,) = exceptions({"log": text + "\n", "stream": "stderr", "time": "2031-02-03T04:05:06.1Z"})
    assert (signal.rank, signal.exception.type) == (5, "KeyError")


@pytest.mark.parametrize(("level", "role"), [("WARNING", Role.CONTEXT), ("debug", Role.CONTEXT), ("INFO", Role.ROOT)])
def test_an_exception_that_its_record_calls_no_error_ended_nothing(level, role):
    (signal,) = exceptions(WHO | {"level": level, "message": "retrying", "exc_info": TRACE})
    assert signal.role is role


@pytest.mark.parametrize(
    "told",
    [
        {"message": "x", "level": "ERROR", "exception": True, "stack": None},
        {"message": "x", "level": "ERROR", "exception": [1, {"frames": 3}], "error": "no object"},
        {"message": "x", "level": "ERROR", "exception": [{"exc_type": 3, "frames": [3, {"lineno": {}}]}]},
        {"message": "x", "level": "INFO", "error.type": "timeout"},
    ],
)
def test_odd_values_are_no_exception(told):
    assert all(signal.role is not Role.ROOT for signal in signals(told))


def test_a_collectors_labels_tell_the_pod_of_a_line():
    for labels in ({"pod": "tts-3", "container": "trainer"}, {"labels": {"pod": "tts-3", "container": "trainer"}}):
        (signal,) = exceptions({"ts": WHO["timestamp"], "stream": "stderr", "line": TRACE, **labels})
        assert (signal.fields["tag_pod"], signal.fields["tag_container"]) == ("tts-3", "trainer")
