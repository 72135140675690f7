"""What is told of a job, and what of a hostile verdict is believed."""

import os
from dataclasses import replace

import pytest

from aggregator.errors import OutputError
from aggregator.slurm import outputs
from aggregator.slurm.folder import Folder
from aggregator.slurm.job import SlurmJob

JOB = SlurmJob(123, user="alice", uid=1000, nodes="node-[1-2]", node="node-1", exit_code="1:0")
FAILURE = {
    "status": "identified", "confidence": 0.94, "kind": "cuda_oom", "ranks": [13], "hosts": ["node-b"], "gpu": "5",
    "phase": "evaluation", "step": 650, "message": "\x1b[31mevil", "evidence": [{"text": "evil"}],
}  # fmt: skip
TOLD = {"outcome": "failed", "first_failure": FAILURE, "coverage": {"files": 3, "bytes": 10, "lines": 2}}


def cause(job=JOB, lost="", **failure):
    return outputs.cause(job, outputs.checked_verdict({**TOLD, "first_failure": {**FAILURE, **failure}}, job), lost)


def test_one_line_says_who_where_what_when_and_how_sure():
    assert outputs.one_line(JOB, cause()) == (
        "job 123 (alice): rank 13 on node-b: CUDA out of memory in evaluation [0.94]"
    )


@pytest.mark.parametrize(
    ("failure", "line"),
    [
        (
            {"status": "ambiguous", "ranks": [3, 5]},
            "one of ranks 3, 5 on node-b: CUDA out of memory in evaluation [0.94]",
        ),
        ({"status": "undetermined", "ranks": [], "hosts": []}, "rank not told by its logs: CUDA out of memory in ev"),
        ({"ranks": [], "hosts": [], "kind": "time_limit", "phase": "unknown"}, "the job: time limit reached [0.94]"),
        ({"hosts": ["a", "b", "c"]}, "rank 13 on 3 nodes: "),
    ],
)
def test_other_ends(failure, line):
    assert cause(**failure).startswith(line)


def test_a_job_of_an_array_is_called_as_slurm_calls_it():
    assert outputs.label(replace(JOB, array_id=120, array_task=4)) == "120_4"


@pytest.mark.parametrize(
    ("outcome", "code", "lost", "is_well"),
    [
        ("completed", "0:0", "", True),
        ("unknown", "0:0", "", True),
        ("completed", "1:0", "", False),
        ("unknown", "0:0", "node-1", False),
        ("completed", "0:0", "node-1", True),
        ("cancelled", "0:0", "", False),
        ("hung", "0:0", "", False),
    ],
)
def test_a_job_went_well_only_if_nobody_says_otherwise(outcome, code, lost, is_well):
    verdict = outputs.checked_verdict({**TOLD, "first_failure": None, "outcome": outcome}, JOB)
    assert outputs.ended_well(replace(JOB, exit_code=code), verdict, lost) is is_well


def test_no_text_of_the_job_is_believed():
    verdict = outputs.checked_verdict(
        {**TOLD, "job": {"id": "evil"}, "warnings": ["evil"], "first_failure": {
            **FAILURE, "kind": "evil", "hosts": ["evil\n", "$(evil)", 7, "node-b"], "gpu": "evil\x1b", "phase": "evil",
        }}, JOB,
    )  # fmt: skip
    assert "evil" not in repr(verdict)
    assert verdict.first_failure.hosts == ("node-b",)


@pytest.mark.parametrize(
    "told",
    [
        None, [], "x", 7, {}, {**TOLD, "outcome": "fine"}, {**TOLD, "outcome": []}, {**TOLD, "first_failure": []},
        {**TOLD, "coverage": None}, {**TOLD, "coverage": {"files": -1, "bytes": 0}},
        *({**TOLD, "first_failure": {**FAILURE, **wrong}} for wrong in (
            {"status": "sure"}, {"confidence": "high"}, {"confidence": 7}, {"confidence": float("nan")},
            {"ranks": "13"}, {"ranks": [None]}, {"ranks": [-1]}, {"ranks": [True]}, {"ranks": [1 << 80]},
            {"hosts": None}, {"step": "x"}, {"ranks": None},
        )),
    ],
)  # fmt: skip
def test_a_damaged_verdict_is_refused(told):
    with pytest.raises(ValueError):  # noqa: PT011 - any of them
        outputs.checked_verdict(told, JOB)


def test_a_comment_is_short_and_harmless():
    text = outputs.comment("a'b\"c`d$e\\f\ng;h|i&j<k>l\x1bm\u202en" + "x" * 300)
    assert text.isascii()
    assert len(text) == outputs.COMMENT_LIMIT
    assert not set(text) & set("'\"`$\\\n|&<>\x1b")


LINE = "2026-12-02T06:41:30Z node-b kernel: NVRM: Xid (PCI:0000:5d:00): {}, pid=41210, name=python, {}"


def hosts_to_rest(line, nodes=("node-a", "node-b"), **failure):
    told = {**FAILURE, "kind": "gpu_lost", **failure}
    return outputs.hosts_to_rest(
        outputs.checked_verdict({**TOLD, "first_failure": told}, JOB), nodes, {"node-b": [line]}
    )


def test_a_node_rests_only_for_what_its_own_kernel_tells():
    lost = LINE.format(79, "GPU has fallen off the bus.")
    assert hosts_to_rest(lost) == [("node-b", lost)]
    assert hosts_to_rest(lost, hosts=["node-a"]) == []
    assert hosts_to_rest(lost, nodes=("node-a",)) == []
    assert hosts_to_rest(lost, kind="gpu_ecc") == []
    assert hosts_to_rest(lost, kind="cuda_oom") == []
    assert hosts_to_rest(lost, status="ambiguous") == []
    assert hosts_to_rest(lost, status="undetermined", ranks=[]) == [("node-b", lost)]


def test_what_a_program_did_is_no_reason_to_rest():
    for code in (13, 31, 43, 45):
        line = LINE.format(code, "Ch 00000008")
        assert all(hosts_to_rest(line, kind=kind) == [] for kind in outputs.HARDWARE)


class TestFolder:
    def test_a_folder_that_others_can_write_is_not_used(self, tmp_path):
        for path, mode in ((tmp_path / "a", 0o777), (tmp_path / "b", 0o1777), (tmp_path / "c", 0o770)):
            path.mkdir()
            path.chmod(mode)
            with pytest.raises(OutputError, match="others can write it"):
                Folder(str(path), trusted=True)

    def test_nor_one_below_such_a_folder(self, tmp_path):
        (tmp_path / "a" / "b").mkdir(parents=True)
        (tmp_path / "a").chmod(0o777)
        with pytest.raises(OutputError, match="folder above"):
            Folder(str(tmp_path / "a" / "b"), trusted=True)

    def test_nor_a_link_to_one(self, tmp_path):
        (tmp_path / "a").mkdir()
        (tmp_path / "b").symlink_to(tmp_path / "a")
        with pytest.raises(OutputError):
            Folder(str(tmp_path / "b"), trusted=True)

    def test_links_at_the_name_are_replaced_and_not_followed(self, tmp_path):
        target, place = tmp_path / "target", tmp_path / "a"
        place.mkdir()
        target.write_text("as it was")
        (place / "x").symlink_to(target)
        (place / "y").symlink_to(target)
        (place / "z").hardlink_to(target)
        with Folder(str(place), trusted=True) as folder:
            folder.write("x", "new", 0o640)
            for name in ("y", "z"):
                with pytest.raises(OutputError):
                    folder.append(name, "node-1 # new", 0o644, known="node-1")
            assert folder.read("y", 100) is None
        assert target.read_text() == "as it was"
        assert (place / "x").read_text() == "new"

    def test_a_failed_write_leaves_nothing_behind(self, tmp_path):
        (tmp_path / "a" / "x").mkdir(parents=True)
        with Folder(str(tmp_path / "a"), trusted=True) as folder, pytest.raises(OutputError):
            folder.write("x", "new", 0o640)
        assert [path.name for path in (tmp_path / "a").iterdir()] == ["x"]

    def test_old_files_are_not_taken_for_new_ones(self, tmp_path):
        with Folder(str(tmp_path), trusted=True) as folder:
            folder.write("x", "new", 0o640)
            os.utime(tmp_path / "x", (1000, 1000))
            assert folder.has("x", 999)
            assert not folder.has("x", 1001)
            assert folder.read("x", 100, not_before=1001) is None
            assert folder.read("x", 2) == "ne"

    def test_of_several_that_take_a_name_one_gets_it(self, tmp_path):
        with Folder(str(tmp_path), trusted=True) as folder:
            assert folder.take("x", 1000)
            assert not folder.take("x", 1000)
            os.utime(tmp_path / "x", (999, 999))
            assert folder.take("x", 1000)

    def test_old_claims_are_swept_and_nothing_else(self, tmp_path):
        for name in ("old.claim", "new.claim", "old.json"):
            (tmp_path / name).touch()
        os.utime(tmp_path / "old.claim", (999, 999))
        os.utime(tmp_path / "old.json", (999, 999))
        with Folder(str(tmp_path), trusted=True) as folder:
            folder.sweep(".claim", 1000)
        assert {path.name for path in tmp_path.iterdir()} == {"new.claim", "old.json"}

    def test_of_many_earlier_runs_nine_are_kept(self, tmp_path):
        with Folder(str(tmp_path), trusted=True) as folder:
            for number in range(12):
                folder.keep("denpex-1", ".txt")
                folder.write("denpex-1.txt", str(number), 0o600)
        assert len(list(tmp_path.iterdir())) == 10
        assert (tmp_path / "denpex-1.txt").read_text() == "11"
        assert (tmp_path / "denpex-1.1.txt").read_text() == "0"
