"""From files to a verdict: what is read, what is not, and that the way in which it is given does not matter."""

import gzip
import json
import multiprocessing
import os
import pickle
import random
import signal
from pathlib import Path

import pytest

from aggregator import pipeline
from aggregator.discover import discover
from aggregator.errors import InputError
from aggregator.pipeline import collect, investigate, postmortem, read_log, read_logs
from aggregator.verdict import to_json
from parsers.records import Role, StampQuality

SAMPLES = Path(__file__).parent.parent.parent / "sample_runs"
KEY = "KeyError: 'labels'"
RESET = "ConnectionResetError: [Errno 104] Connection reset by peer"


def traceback(error, tag=""):
    rows = ["Traceback (most recent call last):", '  File "/home/mira/train.py", line 9, in main', "    run()", error]
    return "".join(f"{tag}{row}\n" for row in rows)


def rank_log(rank, world=4, error=RESET):
    head = f"2026-12-01 10:00:00,000 [rank {rank}] INFO tinylm: initialised process group: rank {rank} of {world}"
    told = [f"2026-12-01 10:00:0{n},000 [rank {rank}] INFO tinylm: step {n}/400 loss 5.3" for n in range(1, 6)]
    return "\n".join([f"{head} on node-a pid {4100 + rank}", *told, ""]) + traceback(error)


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return [str(folder / name) for name in files]


def job():
    return {f"rank_{rank}.log": rank_log(rank, error=KEY if rank == 2 else RESET) for rank in range(4)}


def answer(verdict):
    """All of a verdict but where it was read from."""
    plain = to_json(verdict)
    plain["job"].pop("path")
    return plain


def test_the_order_in_which_files_are_given_does_not_matter(tmp_path):
    paths = write(tmp_path, job())
    wanted = answer(postmortem([str(tmp_path)]))
    assert wanted["first_failure"]["ranks"] == [2]
    draw = random.Random(3)
    for _ in range(6):
        draw.shuffle(paths)
        assert answer(postmortem(paths)) == wanted


def test_the_names_of_files_that_tell_no_rank_do_not_matter(tmp_path):
    texts = [f"[rank{r}]: start\n" + traceback(KEY if r == 1 else RESET, f"[rank{r}]: ") for r in range(3)]
    told = []
    for number, names in enumerate(
        (("a.log", "b.log", "c.log"), ("z.log", "m.log", "b.log"), ("one.txt", "0x.out", "q"))
    ):
        write(tmp_path / str(number), dict(zip(names, texts, strict=True)))
        found = postmortem([str(tmp_path / str(number))]).first_failure
        told.append((found.status, found.ranks, found.kind))
    assert set(told) == {("identified", (1,), "python_exception")}


def test_a_file_alone_is_judged_like_a_folder_that_holds_it(tmp_path):
    text = (
        "".join(f"[rank{r}]: start\n" for r in range(3)) + traceback(KEY, "[rank1]: ") + traceback(RESET, "[rank0]: ")
    )
    (path,) = write(tmp_path, {"train.log": text})
    assert answer(postmortem([path])) == answer(postmortem([str(tmp_path)]))


def test_one_merged_file_tells_the_same_as_a_file_a_rank(tmp_path):
    files = job()
    merged = {"train.log": "".join(f"{r}: {line}\n" for r in range(4) for line in files[f"rank_{r}.log"].splitlines())}
    write(tmp_path / "apart", files)
    write(tmp_path / "merged", merged)
    apart, one = (postmortem([str(tmp_path / name)]) for name in ("apart", "merged"))
    assert (apart.first_failure.ranks, apart.first_failure.kind) == (one.first_failure.ranks, one.first_failure.kind)
    assert [row.rank for row in apart.collateral] == [row.rank for row in one.collateral] == [0, 1, 3]


def test_compressed_files_tell_the_same(tmp_path):
    write(tmp_path / "plain", job())
    write(tmp_path / "gz", {name + ".gz": gzip.compress(text.encode()) for name, text in job().items()})
    plain, packed = (postmortem([str(tmp_path / name)]) for name in ("plain", "gz"))
    assert plain.first_failure.ranks == packed.first_failure.ranks == (2,)
    assert plain.coverage.lines == packed.coverage.lines


@pytest.mark.parametrize("sample", ["two-node-segfault", "hang-flight-recorder", "interleaved-nan"])
def test_files_read_by_several_processes_tell_the_same_as_by_one(sample):
    job = str(SAMPLES / sample / "job")
    assert to_json(investigate([job], workers=3).verdict) == to_json(investigate([job], workers=1).verdict)


def test_what_a_process_could_not_read_is_told(tmp_path):
    write(tmp_path, job())
    for name in ("rank_7.log.gz", "rank_8.log.gz"):
        (tmp_path / name).write_bytes(gzip.compress(b"step 1\n" * 1000)[:-20])
    one, three = (investigate([str(tmp_path)], workers=n).verdict.coverage for n in (1, 3))
    assert one == three
    assert len(one.files_skipped) == 2


def dies_in_a_process_of_its_own(sources, **told):
    if multiprocessing.parent_process() is not None and any(source.rank == 1 for source in sources):
        os.kill(os.getpid(), signal.SIGKILL)
    return read_logs(sources, **told)


def test_a_process_that_is_killed_while_it_reads_changes_nothing(tmp_path, monkeypatch):
    write(tmp_path, job())
    whole = investigate([str(tmp_path)], workers=1).verdict
    monkeypatch.setattr(pipeline, "read_logs", dies_in_a_process_of_its_own)
    assert investigate([str(tmp_path)], workers=2).verdict == whole


def test_what_was_read_is_counted(tmp_path):
    files = job()
    write(tmp_path, files)
    coverage = postmortem([str(tmp_path)]).coverage
    assert (coverage.files, coverage.lines) == (4, sum(text.count("\n") for text in files.values()))
    assert coverage.bytes == sum(len(text) for text in files.values())
    assert 0 < coverage.lines_timestamped <= coverage.lines


def test_scripts_and_configurations_are_not_read_for_failures(tmp_path):
    write(tmp_path, {"train.log": "step 1/4 loss 1\n", "train.py": f"raise {KEY}\n", "conf.yaml": traceback(KEY)})
    assert postmortem([str(tmp_path)]).first_failure is None


def test_an_error_file_tells_what_its_rank_raised_and_when(tmp_path):
    told = {"py_callstack": traceback(KEY), "timestamp": "1796119210"}
    text = json.dumps({"message": {"message": KEY, "extraInfo": told}})
    write(tmp_path, {"none_abcd1234/attempt_0/1/error.json": text, "none_abcd1234/attempt_0/0/stderr.log": "ready\n"})
    (signal,) = collect(discover([str(tmp_path)])).extra_signals
    assert (signal.role, signal.local_rank, signal.quality) == (Role.ROOT, 1, StampQuality.OWN)
    assert signal.ns == 1_796_119_210 * 10**9
    assert postmortem([str(tmp_path)]).first_failure.exception == "KeyError"


@pytest.mark.parametrize("text", ["", "{", "null", "[]", '{"message": 3}', '{"message": {"message": []}}'])
def test_a_damaged_error_file_is_told_and_stops_nothing(tmp_path, text):
    write(tmp_path, {**job(), "none_abcd1234/attempt_0/1/error.json": text})
    verdict = postmortem([str(tmp_path)])
    assert verdict.first_failure.ranks == (2,)
    if text:
        assert any(item.file.endswith("error.json") for item in verdict.coverage.files_skipped)


class Harm:
    def __reduce__(self):
        return (print, ("harm",))


@pytest.mark.parametrize(
    "data", [pickle.dumps({"entries": [], "pg_config": Harm()}), b"\x80\x04\x95", b"\x80\x02}q\x00", b"{not json"]
)
def test_a_dump_that_is_damaged_or_hostile_is_refused_and_stops_nothing(tmp_path, data, capsys):
    write(tmp_path, {**job(), "nccl_trace_rank_1": data})
    verdict = postmortem([str(tmp_path)])
    assert verdict.first_failure.ranks == (2,)
    assert any(item.file == "nccl_trace_rank_1" for item in verdict.coverage.files_skipped)
    assert capsys.readouterr().out == ""


def test_stamps_without_a_year_are_given_the_year_of_the_job(tmp_path):
    agent = "E1201 10:00:09.000000 4000 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) "
    agent += "local_rank: 2 (pid: 4102) of binary: /usr/bin/python3\n"
    write(tmp_path, {**job(), "torchrun.err": agent})
    job_times = postmortem([str(tmp_path)]).job
    assert (job_times.ended - job_times.started) / 10**9 < 60


def test_a_folder_without_logs_is_an_error_of_the_user(tmp_path):
    with pytest.raises(InputError):
        postmortem([str(tmp_path)])
    with pytest.raises(InputError):
        postmortem([str(tmp_path / "absent")])


def test_bytes_that_are_no_text_are_told(tmp_path):
    text = rank_log(0, 2, KEY).encode() + b"\xff\xfe\x00 caf\xe9\n"
    write(tmp_path, {"rank_0.log": text, "rank_1.log": rank_log(1, 2)})
    verdict = postmortem([str(tmp_path)])
    assert verdict.first_failure.ranks == (0,)
    assert any("not UTF-8" in warning for warning in verdict.warnings)


def test_a_log_that_is_still_being_written_is_told(tmp_path, monkeypatch):
    log = tmp_path / "train.log"
    log.write_text("step 1 loss 0.5\n", encoding="utf-8")
    assert postmortem([str(tmp_path)]).warnings == ()

    def reads_while_it_grows(*arguments):
        scan = read_log(*arguments)
        with log.open("a", encoding="utf-8") as out:
            out.write("step 2 loss 0.4\n")
        return scan

    monkeypatch.setattr("aggregator.pipeline.read_log", reads_while_it_grows)
    (warning,) = postmortem([str(tmp_path)]).warnings
    assert warning.startswith("train.log: still being written")
