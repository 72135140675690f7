"""Every sample of a secret, sent through every output of the program; and lines without one, which stay as they are."""

import io
import json
import os
import re
import signal
import tarfile
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aggregator import cli, safe
from aggregator.masking import mask_texts
from aggregator.notify import FailureMessage
from aggregator.notify.command import _facts, _report
from aggregator.notify.slack import slack_text
from aggregator.pipeline import investigate
from aggregator.reports import ReportOptions, reporter, reporter_names

SAMPLES = [(pattern.id, line, secret) for pattern in safe.secret_patterns() for line, secret in pattern.match]
RUNS = Path(__file__).parents[2] / "sample_runs"
PEM_BODY = "MIIEowIBAAKCAQEAz3p1q0ZkT8vWb5nJx2cYqLhR7uDfGsA9mKoPeXyVtNwBiC4z"
PEM_LINES = [PEM_BODY[n:] + PEM_BODY[:n] for n in range(0, 50, 10)]
PEM = ["-----BEGIN RSA PRIVATE KEY-----", *PEM_LINES, "q1w2e3r4t5==", "-----END RSA PRIVATE KEY-----"]
IN_NAMES = "hf_" + "aB3dE5gH7j" * 4


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


def job_with(folder, text, name="rank_1.log", host=None):
    """A failed job that says `text` in a line, in an exception and in the name of its function."""
    one = text.replace("\n", "\\n")
    word = re.sub(r"[^A-Za-z0-9_.-]", "_", one)
    function = word if safe.mask(word) != word else "main"  # a secret of a form of its own is one there too
    lines = [
        f"step 1 loss 2.0 {one}", f"INFO environment: {one}", "Traceback (most recent call last):",
        f'  File "/w/train.py", line 3, in {function}', "    step()",
        f"ValueError: cannot load {one}", "",
    ]  # fmt: skip
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(f"2031-02-03 04:05:06,789 [rank1]: {line}\n" for line in lines))
    return folder


def run(capsys, *words):
    code = cli.run([str(word) for word in words])
    told = capsys.readouterr()
    assert code == 0, told.err
    return told.out + told.err


def verdicts(job, capsys, _folder):
    """What the program writes of what it found in a job: by the name of the output, its text."""
    case = investigate([str(job)])
    for name in reporter_names():
        out = io.StringIO()
        reporter(name, ReportOptions()).render(case, out)
        yield name, out.getvalue()
    message = FailureMessage(case.verdict, redact=True)
    yield "webhook", slack_text(message)
    yield "on-failure", _report(message).decode() + json.dumps(_facts(message))
    yield "debug log", run(capsys, "postmortem", "-vv", job)
    yield "diagnose", run(capsys, "diagnose", "--json", next(job.rglob("*.log")))
    told = run(capsys, "history", "--json")
    yield "history", told + "".join(path.read_text(errors="replace") for path in _state().rglob("*") if path.is_file())


def lines(job, capsys, folder):
    """What the program writes of the lines of a job."""
    for form in ("text", "raw", "json"):
        yield f"logs {form}", run(capsys, "logs", "-o", form, job)
    for form in ("table", "csv", "json", "ndjson"):
        yield f"query events {form}", run(capsys, "query", "-f", form, job, "select * from events")
        yield f"query signals {form}", run(capsys, "query", "-f", form, job, "select * from signals")
    for form in ("ndjson", "otlp"):
        yield f"export {form}", run(capsys, "export", "--format", form, "-o", "-", job)
    run(capsys, "export", "-o", folder / "e.parquet", "--force", job)
    yield "export parquet", json.dumps(pq.read_table(folder / "e.parquet").to_pylist(), default=str)
    words = ["--timeout", "1", "--state-dir", folder / "state", "--prometheus", folder / "watch.prom"]
    yield "watch", run(capsys, "watch", "-vv", "--plain", *words, job) + (folder / "watch.prom").read_text()
    yield "watch json", run(capsys, "watch", "--json", *words, job)
    run(capsys, "bundle", "--force", "-o", folder / "b.tar.zst", job)
    yield "bundle", unpacked(folder / "b.tar.zst")


def outputs(job, capsys, folder):
    yield from verdicts(job, capsys, folder)
    yield from lines(job, capsys, folder)


def unpacked(archive):
    """All names and texts of a bundle."""
    with pa.CompressedInputStream(str(archive), "zstd") as data, tarfile.open(fileobj=data, mode="r|") as files:
        return "".join(f"{item.name}\n{files.extractfile(item).read().decode(errors='replace')}" for item in files)


def _state():
    return Path(os.environ["XDG_STATE_HOME"])


def pieces(secret):
    """What of a secret would be found in any quoting: its longest run of plain characters."""
    return max(re.findall(r"[A-Za-z0-9_.-]+", secret.replace("\n", " ")), key=len)


def without_layout(text):
    """A report as one run of characters: lines that were broken are whole again."""
    return re.sub(r"[\s|]|&#\d+;", "", text)


def leaking(told_of, job, capsys, folder, *secrets):
    """The outputs that hold one of some texts."""
    told = ((name, without_layout(text)) for name, text in told_of(job, capsys, folder))
    return {name for name, text in told if any(secret in text for secret in secrets)}


@pytest.mark.parametrize(
    ("kind", "line", "secret"), SAMPLES, ids=[f"{kind}-{n}" for n, (kind, *_) in enumerate(SAMPLES)]
)
def test_s13_no_sample_of_a_secret_is_in_what_is_told_of_a_verdict(kind, line, secret, capsys, tmp_path):
    job = job_with(tmp_path / "job", line)
    assert leaking(verdicts, job, capsys, tmp_path, pieces(secret)) == set()


def test_s13_no_sample_of_a_secret_is_in_what_is_told_of_lines(capsys, tmp_path):
    job = tmp_path / "job"
    for number, (_, line, _) in enumerate(SAMPLES):
        job_with(job, line, name=f"rank_{number}.log")
    assert leaking(lines, job, capsys, tmp_path, *(pieces(secret) for _, _, secret in SAMPLES)) == set()


def test_s13_a_key_of_many_lines_is_masked_whole_in_every_output(capsys, tmp_path):
    job = tmp_path / "job"
    job_with(job, "x")
    file = job / "rank_1.log"
    told = "".join(f"2031-02-03 04:05:06,700 [rank1]: {line}\n" for line in PEM)
    file.write_text(told + file.read_text() + "\n".join(PEM) + "\n")
    assert leaking(outputs, job, capsys, tmp_path, *(line[-24:] for line in PEM_LINES), "q1w2e3r4t5") == set()


def test_s13_a_secret_that_is_coloured_within_is_masked_in_every_output(capsys, tmp_path):
    job = job_with(tmp_path / "job", f"{IN_NAMES[:6]}\x1b[1;36m{IN_NAMES[6:9]}\x1b[m\x1b[K{IN_NAMES[9:]}")
    assert leaking(outputs, job, capsys, tmp_path, IN_NAMES[9:20]) == set()


def test_s13_an_error_files_secrets_are_masked_by_their_names_in_a_bundle(capsys, tmp_path):
    (tmp_path / "job" / "0").mkdir(parents=True)
    extra = {"py_callstack": "ValueError: x", "timestamp": "1700000000", "DB_PASSWORD": "correct-horse", "argv": {}}
    extra["argv"] = {"HF_TOKEN": ["not-the-usual-form-1234"], IN_NAMES: 1}
    told = {"message": {"message": "ValueError: x", "extraInfo": extra}}
    (tmp_path / "job" / "0" / "error.json").write_text(json.dumps(told))
    run(capsys, "bundle", "-o", tmp_path / "b.tar.zst", tmp_path / "job")
    text = unpacked(tmp_path / "b.tar.zst")
    assert [word for word in ("correct-horse", "not-the-usual", IN_NAMES[:20]) if word in text] == []
    assert "ValueError" in text


def test_s13_no_sample_of_a_secret_is_in_what_the_epilog_writes(tmp_path, node):
    for number, (_, line, _) in enumerate(SAMPLES):
        text = (job_with(tmp_path, line) / "rank_1.log").read_text()
        node.write(f"123/rank_{number}.log", text)
        node.write(f"123/{number}/error.json", json.dumps({"message": {"message": line, "extraInfo": {}}}))
    ended = node.epilog()
    assert "rank" in ended.said
    data, names = node.written()
    assert {"denpex-123.txt", "denpex-123.json", "denpex-123.html"} <= names
    told = without_layout(data.decode() + ended.said + ended.printed)
    assert [secret for _, _, secret in SAMPLES if pieces(secret) in told] == []


def test_s13_a_key_between_other_ranks_lines_is_masked_whole():
    mixed = [
        line for pair in zip(PEM, ["[rank0]: step 7 loss 1.25 completed"] * len(PEM), strict=True) for line in pair
    ]
    masked = safe.mask_lines(mixed)
    assert [line for line in masked if line.startswith("[rank0]")] == mixed[1::2]
    assert not any(line[-24:] in "\n".join(masked) for line in PEM_LINES)
    assert not any(line[-24:] in "\n".join(safe.mask_lines(PEM[2:])) for line in PEM_LINES)


def test_s13_secrets_in_names_of_files_and_folders_are_masked(capsys, tmp_path):
    job = job_with(tmp_path / "job", "x", name=f"{IN_NAMES}/rank_1.log")
    (job / f"{IN_NAMES}.tar").write_bytes(b"\0" * 600)
    job = job.rename(tmp_path / f"job-{IN_NAMES}")
    assert leaking(outputs, job, capsys, tmp_path, IN_NAMES[:20]) == set()


def test_s13_ordinary_lines_are_not_masked():
    lines = [
        line for file in RUNS.rglob("*") if file.is_file() for line in file.read_text(errors="replace").splitlines()
    ]
    assert len(lines) > 3000
    assert [line for line in lines if safe.mask(line) != line] == []
    assert [line for line, masked in zip(lines, safe.mask_lines(lines), strict=True) if line != masked] == []


def test_s18_a_crash_tells_no_secret_of_its_locals(capsys, monkeypatch, tmp_path):
    def crash(*_arguments, **_options):
        token = IN_NAMES
        raise RuntimeError(f"cannot use {token}")

    monkeypatch.setattr("aggregator.pipeline.investigate", crash)
    for words in (["postmortem", str(tmp_path)], ["--debug", "postmortem", str(tmp_path)]):
        assert cli.run(words) == 1
        told = capsys.readouterr()
        assert IN_NAMES[:20] not in told.out + told.err
        assert "this is a bug" in told.err


def test_a_column_is_masked_as_its_lines_are_wherever_a_secret_lies_in_it():
    odd = ["", None, "pass", "word=hunter2222", "x\x9b0mhf_\x9b1m" + "a" * 36, "to\x1b[0mken=" + "b" * 24, "é", "token"]
    lines = odd + [text for _, line, _ in SAMPLES for text in (line, line.upper(), line[: len(line) // 2])]
    masked = mask_texts(pl.Series(lines)).to_list()
    assert masked == [None if line is None else safe.mask(line) for line in lines]
    for line in lines:
        assert mask_texts(pl.Series(["private ke", line, "y"])).to_list()[1] == (line and safe.mask(line))
