"""Exports of log services: one JSON array of records, not a line each."""

import json

import pytest

from aggregator.discover import discover
from aggregator.errors import InputError
from aggregator.jsonarray import MAX_BYTES, as_lines
from aggregator.pipeline import postmortem

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB"


def entry(second, text, task, *, severity="INFO"):
    return {
        "insertId": f"x{second}", "jsonPayload": {"message": text, "levelname": severity},
        "resource": {"type": "ml_job", "labels": {"task_name": task}}, "severity": severity,
        "timestamp": f"2026-05-29T20:17:{second:02}.373863662Z",
    }  # fmt: skip


ENTRIES = [
    *(
        entry(10 + step, f"[rank{rank}]: step {step} loss 2.1", f"worker-{rank}")
        for step in range(3)
        for rank in (0, 1)
    ),
    entry(20, f"[rank1]: {OOM}", "worker-1", severity="ERROR"),
]


@pytest.mark.parametrize("indent", [None, 1, 2], ids=["compact", "one blank", "two blanks"])
@pytest.mark.parametrize("order", [1, -1], ids=["oldest first", "newest first"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_an_exported_array_is_read_record_by_record_the_oldest_first(tmp_path, indent, order, wrapped):
    entries = ENTRIES[::order]
    (tmp_path / "downloaded-logs.json").write_text(
        json.dumps({"events": entries} if wrapped else entries, indent=indent)
    )
    verdict = postmortem([str(tmp_path)])
    assert (verdict.first_failure.kind, verdict.first_failure.ranks) == ("cuda_oom", (1,))
    assert verdict.coverage.lines == verdict.coverage.lines_timestamped == len(ENTRIES)
    assert verdict.first_failure.evidence[0].line == len(ENTRIES)
    (note,) = verdict.coverage.files_skipped
    assert ("from the last to the first" in note.reason) == (order < 0)


def test_a_replica_of_cloud_logging_is_the_pod_of_its_lines(tmp_path):
    (tmp_path / "export.json").write_text(json.dumps(ENTRIES, indent=2))
    assert postmortem([str(tmp_path)]).first_failure.hosts == ("worker-1",)


@pytest.mark.parametrize(
    "text", ['[\n {"message": "a", "timestamp": 1},\n {"mess', "[{" + '"time": 1, "msg": [' * 9_000]
)
def test_an_array_that_is_cut_off_is_read_as_text_and_told(text):
    told = []
    assert b"".join(as_lines(iter([text.encode()]), told.append)) == text.encode()
    assert len(told) == 1


def test_an_array_too_large_for_memory_passes_as_it_is_and_what_helps_is_told():
    told = []
    pieces = [b'[{"message": "a", "timestamp": 1}', *[b"," * (1 << 20)] * ((MAX_BYTES >> 20) + 2)]
    assert sum(map(len, as_lines(iter(pieces), told.append))) == sum(map(len, pieces))
    assert "jq -c '.[]'" in told[0]


@pytest.mark.parametrize(
    "text",
    ['[{"loss": 2.1, "step": 10}]', '[{"name": "message", "time": 3, "text": [1]}]', "[\n  INFO message: time: 3\n]"],
)
def test_other_json_and_other_text_in_brackets_is_as_it_was(text):
    assert b"".join(as_lines(iter([text.encode()]), pytest.fail)) == text.encode()


def test_an_array_of_something_else_is_no_log(tmp_path):
    (tmp_path / "data.json").write_text(json.dumps([{"question": "why", "answer": 42}] * 5))
    with pytest.raises(InputError):
        discover([str(tmp_path)])
