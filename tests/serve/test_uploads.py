"""What is pasted or dropped: the command line's verdict, secrets masked, archives not trusted."""

import gzip
import io
import json
import stat
import subprocess
import sys
import tarfile
import warnings
import zipfile
from pathlib import Path

import pytest
from asking import ROOT_TRACEBACK, ask, give, zip_of

from aggregator.errors import InputError
from aggregator.serve import upload
from aggregator.serve.upload import TooMuchError, discover_upload

SAMPLES = Path(__file__).parent.parent.parent / "sample_runs"
BOOM = ROOT_TRACEBACK.format("boom").encode()
TOKEN = "hf_abcdefghijKLMNOPQRSTUVWXYZ01234567"


def told_by_command(*words, **options):
    command = [sys.executable, "-m", "aggregator", "postmortem", *words, "--no-history", "--format"]
    runs = [subprocess.run([*command, form], capture_output=True, check=True, **options) for form in ("json", "html")]
    return json.loads(runs[0].stdout), runs[1].stdout.decode()


def told_by_page(server, data, name):
    report = give(server, data, name)
    return json.loads(ask(server, f"{report}.json")[2]), ask(server, report)[2]


def called(told, path, name):
    """What was told of a job, as if it were called otherwise."""
    verdict, page = told
    assert verdict["job"]["path"] == path
    return verdict | {"job": verdict["job"] | {"path": name}}, page.replace(path, name)


@pytest.mark.parametrize(
    "name", ["eval-oom-no-grad", "hang-flight-recorder", "slurm-node-failure", "two-node-segfault"]
)
def test_a_zip_of_a_job_gets_the_verdict_and_the_report_of_the_command_line(serve, name):
    job = SAMPLES / name / "job"
    by_page = told_by_page(serve(), zip_of(job, job.parent), "job.zip")
    assert by_page == called(told_by_command(str(job)), str(job), "job.zip")


def test_pasted_text_gets_the_verdict_and_the_report_of_standard_input(serve):
    by_page = told_by_page(serve(), BOOM, "")
    assert called(by_page, "pasted text", "-") == told_by_command("-", input=BOOM)


def test_a_dropped_file_is_called_by_its_name(serve):
    verdict, _ = told_by_page(serve(), gzip.compress(BOOM), "C%3A%5Clogs%5Crank_2.log.gz")
    assert verdict["first_failure"]["evidence"][0]["file"] == "rank_2.log.gz"
    assert verdict["first_failure"]["ranks"] == [2]


def test_secrets_are_masked_in_all_that_comes_back(serve):
    server = serve()
    text = ROOT_TRACEBACK.format(f"401 for token {TOKEN}").encode()
    name = f"{TOKEN}.log"
    report = give(server, text, name)
    answers = [ask(server, where)[2] for where in ("", report, f"{report}.json")]
    assert not [answer for answer in answers if TOKEN in answer]
    assert all("[hf-token:" in answer for answer in answers)
    assert TOKEN not in str(give(server, b"\0\1\2" * 99, name))


def test_what_is_no_log_is_told_with_what_to_do(serve):
    status, problem, _ = give(serve(), b"\0\1\2\3" * 99, "a.log")
    assert (status, problem) == (422, "a.log: no log to read")


def packed(files, form="zip"):
    out = io.BytesIO()
    if form == "zip":
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # two files of one name
            for name, data in files:
                archive.writestr(name, data)
    else:
        with tarfile.open(fileobj=out, mode=f"w:{form}") as archive:
            for name, data in files:
                info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def read(data, name="job.zip"):
    """Names to contents, and the notes, of an upload."""
    found = discover_upload(name, data)
    return {source.path: source.held for source in found.sources}, {note.path: note.reason for note in found.skipped}


@pytest.mark.parametrize("form", ["zip", "", "gz", "bz2", "xz"])
def test_zips_and_tars_are_read_from_memory(form):
    files, notes = read(packed([("job/rank_0.log", b"zero\n"), ("job/b/rank_1.log", b"one\n")], form))
    assert files == {"rank_0.log": b"zero\n", "b/rank_1.log": b"one\n"}
    assert notes == {}


def test_a_top_folder_of_another_name_is_a_part_of_the_job():
    files, _ = read(packed([("attempt_0/rank_0.log", b"zero\n")]))
    assert list(files) == ["attempt_0/rank_0.log"]


@pytest.mark.parametrize("form", ["zip", "gz"])
@pytest.mark.parametrize("name", ["../rank_0.log", "/etc/rank_0.log", "a/../../rank_0.log", "a\\..\\rank_0.log"])
def test_names_that_lead_out_of_an_archive_are_not_read(name, form):
    files, notes = read(packed([(name, BOOM), ("rank_1.log", BOOM)], form))
    assert list(files) == ["rank_1.log"]
    assert notes == {name: "a name that leads out of the archive: not read"}


def test_links_in_a_zip_are_not_followed():
    link = zipfile.ZipInfo("rank_0.log")
    link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    files, notes = read(packed([(link, b"/etc/passwd"), ("rank_1.log", BOOM)]))
    assert list(files) == ["rank_1.log"]
    assert notes == {"rank_0.log": "a link in an archive: not followed"}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar_are_not_followed(kind):
    link = tarfile.TarInfo("rank_0.log")
    link.type, link.linkname = kind, "/etc/passwd"
    files, notes = read(packed([(link, b""), ("rank_1.log", BOOM)], "gz"))
    assert list(files) == ["rank_1.log"]
    assert notes == {"rank_0.log": "a link or device in an archive: not followed"}


def test_of_two_files_of_one_name_the_first_is_read():
    files, notes = read(packed([("rank_0.log", b"one\n"), ("rank_0.log", b"two\n")]))
    assert files == {"rank_0.log": b"one\n"}
    assert notes == {"rank_0.log": "two files of this name"}


def test_what_is_no_log_in_an_archive_is_not_unfolded(monkeypatch):
    monkeypatch.setattr(upload, "BUDGET", upload.Budget(total=1 << 20))
    files, notes = read(packed([("model.safetensors", b"\0" * (4 << 20)), ("rank_0.log", BOOM)]))
    assert list(files) == ["rank_0.log"]
    assert "checkpoint" in notes["model.safetensors"]


@pytest.mark.parametrize("form", ["zip", "gz", "xz"])
def test_a_bomb_is_refused(form):
    bomb = packed([(f"rank_{n}.log", b"\0" * (16 << 20)) for n in range(6)], form)
    with pytest.raises(TooMuchError, match="more than 200 times its size"):
        read(bomb)


def test_a_sparse_file_in_a_tar_is_a_bomb_too(tmp_path, monkeypatch):
    monkeypatch.setattr(upload, "BUDGET", upload.Budget(total=32 << 20, free=1 << 20, ratio=20))
    with (tmp_path / "rank_0.log").open("wb") as file:
        file.truncate(1 << 30)
    made = subprocess.run(
        ["tar", "-C", tmp_path, "--sparse", "-cf", "-", "rank_0.log"], capture_output=True, check=True
    ).stdout
    with pytest.raises(TooMuchError):
        read(made, "job.tar")


@pytest.mark.parametrize("form", ["zip", "gz"])
def test_an_archive_of_very_many_files_is_refused(form, monkeypatch):
    monkeypatch.setattr(upload, "MOST_ENTRIES", 99)
    with pytest.raises(TooMuchError, match="more than 99 entries"):
        read(packed([(f"{n}/", b"") for n in range(100)], form))


def test_a_bomb_is_told_as_too_large(serve):
    status, problem, help_text = give(serve(), packed([("a.log", b"\0" * (80 << 20))]), "a.zip")
    assert (status, problem) == (413, "a.zip: stopped: unfolds to more than 200 times its size")
    assert "unpack it" in help_text


def test_an_archive_that_is_cut_off_is_read_as_far_as_it_goes():
    noise = bytes(range(32, 127)) * 4000
    whole = packed([("rank_0.log", BOOM), ("rank_1.log", noise)], "")
    files, notes = read(whole[:20_000], "job.tar")
    assert files["rank_0.log"] == BOOM
    assert "damaged" in " ".join(notes.values())
    with pytest.raises(InputError, match="not a zip that can be read"):
        read(packed([("rank_0.log", BOOM)])[:-30])


def test_a_damaged_or_encrypted_file_in_a_zip_costs_only_itself():
    data = bytearray(packed([("rank_0.log", BOOM), ("rank_1.log", BOOM), ("rank_2.log", BOOM)]))
    place = data.index(b"rank_0.log") + len(b"rank_0.log")
    data[place + 5 : place + 25] = b"\xff" * 20
    entry = data.index(b"PK\x01\x02", data.index(b"PK\x01\x02") + 4)  # of the second file, in the list at the end
    data[entry + 8] |= 1
    files, notes = read(bytes(data))
    assert files["rank_2.log"] == BOOM
    assert "damaged" in notes["rank_0.log"]
    assert notes["rank_1.log"] == "encrypted"


def test_a_file_without_a_name_costs_only_itself():
    data = packed([("rank_0.log", BOOM), ("rank_1.log", BOOM)])
    files, notes = read(data.replace(b"rank_0", b"\0ank_0"))
    assert list(files) == ["rank_1.log"]
    assert notes == {"": "a name that leads out of the archive: not read"}


def test_times_that_no_calendar_has_are_no_times():
    info = zipfile.ZipInfo("rank_0.log", (2000, 0, 0, 0, 0, 0))
    found = discover_upload("job.zip", packed([(info, BOOM)]))
    assert found.sources[0].mtime_ns is None
    late = tarfile.TarInfo("rank_0.log")
    late.mtime = 1 << 33
    assert discover_upload("job.tar", packed([(late, BOOM)], "gz")).sources[0].mtime_ns is None
