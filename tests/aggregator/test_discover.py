"""What discovery makes of file names, places and first bytes."""

import gzip
import json
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from job_folders import LINE, plant, ranks

from aggregator import walk
from aggregator.discover import discover
from aggregator.errors import InputError
from aggregator.layouts import file_host, host_family, read_name
from parsers.records import SourceKind

RANK_NAMED = [
    ("rank_3.log", 3),
    ("rank-3.log", 3),
    ("rank3.log", 3),
    ("rank.3.log", 3),
    ("train_rank_00012.log", 12),
    ("rank3.stdout.txt", 3),
    ("rank_3/stdout.txt", 3),
    ("rank.3/stderr", 3),
    ("20310203040506_rank11.log", 11),
    ("nemo_log_globalrank-11_localrank-3.txt", 11),
    ("51820447_15_log.out", 15),
    ("51820447_2_15_log.err", 15),
    ("node-b/rank_00012.log.gz", 12),
    ("1/rank.07/stdout", 7),
]


@pytest.mark.parametrize(("name", "rank"), RANK_NAMED)
def test_a_name_that_says_rank_tells_the_global_rank(name, rank):
    assert read_name(tuple(name.split("/"))).rank == rank


@pytest.mark.parametrize(
    "name",
    ["local_rank_3.log", "node_rank3.log", "tp_rank_3.log", "localrank-3.txt", "slurm-123_4.out", "pp_rank03.err"],
)
def test_other_ranks_and_array_indices_are_no_global_ranks(name):
    hints = read_name((name,))
    assert hints is not None
    assert hints.rank is None


@pytest.mark.parametrize(
    "name", ["crank3.log", "franking_3.log", "train.log", "vt_run3.log", "log.run.1", "ranking.txt", "rank.log"]
)
def test_a_lone_number_is_no_rank(tmp_path, name):
    assert ranks(plant(tmp_path, name)) == {name: None}


@pytest.mark.parametrize(
    "template",
    ["log.{}", "log_{}.txt", "worker_{}.log", "stdout.{}", "err.{}", "out/{}.log", "train-118812-{}.out", "{}/out.txt"],
)
def test_siblings_numbered_from_zero_are_ranks(tmp_path, template):
    found = plant(tmp_path, *(template.format(n) for n in range(4)))
    assert ranks(found) == {template.format(n): n for n in range(4)}
    assert {source.layout for source in found.values()} == {"rank-family"}


@pytest.mark.parametrize(
    "template",
    ["run_{}.log", "attempt_{}.log", "step_{}.log", "epoch{}.txt", "slurm-12_{}.out", "train-worker-{}.log", "v{}.log"],
)
def test_siblings_that_number_something_else_are_no_ranks(tmp_path, template):
    assert set(ranks(plant(tmp_path, *(template.format(n) for n in range(4)))).values()) == {None}


@pytest.mark.parametrize("word", ["rang", "part"])
def test_siblings_under_another_word_are_ranks_where_two_of_them_say_so_inside(tmp_path, word):
    files = {f"{word}{n}.log": b"[rank%d]: fertig\n" % n if n in {0, 2} else b"Schritt 1\n" for n in range(4)}
    assert ranks(plant(tmp_path, files=files)) == {f"{word}{n}.log": n for n in range(4)}


def test_siblings_that_start_at_one_are_no_ranks(tmp_path):
    assert set(ranks(plant(tmp_path, "log_1.txt", "log_2.txt", "log_3.txt")).values()) == {None}


def test_files_of_one_node_each_are_not_taken_for_ranks(tmp_path):
    files = {f"log.{n}": b"".join(b"[rank%d]: x\n" % r for r in range(8 * n, 8 * n + 8)) for n in range(2)}
    assert set(ranks(plant(tmp_path, files=files)).values()) == {None}


def test_a_node_number_that_is_called_rank_is_found_out_by_the_tags_inside(tmp_path):
    files = {f"rank{n}.log": b"".join(b"[rank%d]: x\n" % r for r in range(8 * n, 8 * n + 8)) for n in range(2)}
    found = plant(tmp_path, files=files)
    assert set(ranks(found).values()) == {None}
    assert {source.layout for source in found.values()} == {"rank-denied"}


def test_numbers_that_go_on_over_hosts_are_global_ranks(tmp_path):
    found = plant(tmp_path, *(f"out/tx-{'abc'[n // 4]}.{n}.log" for n in range(12)))
    assert sorted(ranks(found).values()) == list(range(12))
    assert found["out/tx-b.5.log"].host == "tx-b"


@pytest.mark.parametrize("name", ["pw{}_r{}.log", "pw{}-rank-{}.log", "pw{}.worker{}.out", "logs/pw{}_w{}.txt"])
def test_a_word_for_ranks_between_host_and_number_is_no_part_of_the_host(tmp_path, name):
    found = plant(tmp_path, *(name.format(1 + n // 4, n) for n in range(8)))
    assert sorted(ranks(found).values()) == list(range(8))
    assert found[name.format(2, 5)].host == "pw2"


def test_numbers_that_begin_anew_on_each_host_are_local_ranks(tmp_path):
    found = plant(tmp_path, *(f"node{h}_{n}.err" for h in "ab" for n in range(4)))
    assert set(ranks(found).values()) == {None}
    assert (found["nodeb_3.err"].local_rank, found["nodeb_3.err"].host, found["nodeb_3.err"].stream) == (
        3,
        "nodeb",
        "stderr",
    )


def test_rank_files_repeated_in_the_folder_of_each_host_are_local(tmp_path):
    found = plant(tmp_path, *(f"hgx-{h}/rank{n}.log" for h in "ab" for n in range(2)))
    assert {(s.rank, s.local_rank, s.host) for s in found.values()} == {
        (None, n, f"hgx-{h}") for h in "ab" for n in range(2)
    }


def test_one_numbered_file_a_node_gives_node_ranks(tmp_path):
    found = plant(tmp_path, "node_0.log", "node_1.log")
    assert {(s.rank, s.node_rank) for s in found.values()} == {(None, 0), (None, 1)}


def test_torchruns_numbered_folders_are_local_ranks_even_without_those_above(tmp_path):
    found = plant(tmp_path, *(f"{n}/{stream}.log" for n in range(2) for stream in ("stdout", "stderr")))
    assert {(s.rank, s.local_rank) for s in found.values()} == {(None, 0), (None, 1)}


def test_gpu_numbers_are_local(tmp_path):
    found = plant(tmp_path, *(f"gpu{n}.log" for n in range(4)))
    assert {(s.rank, s.local_rank) for s in found.values()} == {(None, n) for n in range(4)}


def test_torchrun_folders_tell_local_rank_attempt_and_stream_but_no_global_rank(tmp_path):
    error = json.dumps({"message": {"message": "E: x", "extraInfo": {"py_callstack": "", "timestamp": "1"}}}).encode()
    run = {h: f"sw{h}/torchrun_logs/job7_k3x_9a{h}b" for h in (1, 2)}
    found = plant(
        tmp_path,
        *(f"{run[h]}/attempt_1/{n}/stderr.log" for h in (1, 2) for n in range(2)),
        files={f"{run[2]}/attempt_1/1/error.json": error},
    )
    stderr = found[f"{run[2]}/attempt_1/1/stderr.log"]
    assert (stderr.rank, stderr.local_rank, stderr.attempt, stderr.stream) == (None, 1, 1, "stderr")
    assert (stderr.host, stderr.group) == ("sw2", run[2])
    assert found[f"{run[2]}/attempt_1/1/error.json"].kind is SourceKind.ERROR_JSON


def test_logs_that_nemo_moved_aside_are_of_earlier_runs(tmp_path):
    name = "nemo_log_globalrank-{0}_localrank-{0}.txt"
    here, other = (tuple(f"{top}/{folder}" for folder in ("run_0/", "run_2/", "")) for top in ("exp", "alone"))
    found = plant(
        tmp_path,
        *(folder + name.format(n) for folder in here for n in range(2)),
        "exp/nemo_error_log.txt",
        *(folder + name.format(0) for folder in other[:1]),
    )
    assert [found[folder + name.format(1)].attempt for folder in here] == [0, 2, 3]
    assert found["exp/nemo_error_log.txt"].attempt == 3
    assert found[other[0] + name.format(0)].attempt is None  # nothing newer lies beside it


def test_logs_of_nemo_that_are_the_job_folder_itself_are_of_the_only_run(tmp_path):
    name = "nemo_log_globalrank-{0}_localrank-{0}.txt"
    assert {source.attempt for source in plant(tmp_path, name.format(0), name.format(1)).values()} == {None}


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("slurm-771203.out", {"job_id": "771203", "stream": None}),
        ("slurm-123_4.out", {"job_id": "123_4", "rank": None}),
        ("warm.o5523107", {"job_id": "5523107"}),
        ("llama2-70b_4471.out", {"job_id": "4471"}),
        ("train_2031-02-03.log", {"job_id": None}),
        ("worker-3f2a10aa01-01000000-41210.err", {"pid": 41210, "stream": "stderr"}),
        ("worker-77ab12-01000000-3035.err", {"pid": 3035, "job_id": None}),
        ("python-core-worker-3f2a10aa01_41210.log", {"pid": 41210}),
        ("nccl.gpu-a03.41207.log", {"pid": 41207, "host": "gpu-a03"}),
        ("ml_train-worker-1_0a1b2c3d-11/pytorch/2.log", {"host": "train-worker-1", "attempt": 2}),
        ("pods/ml_train-worker-1_0a1b/pytorch/2.log", {"host": "train-worker-1", "attempt": 2}),
        ("team_exp_2024/logs/2.log", {"layout": "plain", "attempt": None}),
        ("train-worker-1.log", {"host": "train-worker-1", "rank": None}),
        ("10.4.0.7/raylet.out", {"host": "10.4.0.7", "layout": "ray-system"}),
    ],
)
def test_launchers_names_are_read(tmp_path, name, fields):
    source = plant(tmp_path, name)[name]
    assert {key: getattr(source, key) for key in fields} == fields


def test_compression_is_known_by_its_bytes(tmp_path):
    found = plant(tmp_path, files={"rank_3.log.gz": gzip.compress(LINE), "rank_4.log": gzip.compress(LINE)})
    assert {(s.rank, s.compression) for s in found.values()} == {(3, "gzip"), (4, "gzip")}


def test_rotated_parts_stand_before_the_log_oldest_first_and_share_a_group(tmp_path):
    found = plant(tmp_path, "x.log", "x.log.1", files={"x.log.2.gz": gzip.compress(LINE)})
    assert list(found) == ["x.log.2.gz", "x.log.1", "x.log"]
    assert {source.group for source in found.values()} == {"x.log"}


def test_rotated_parts_of_a_rank_file_keep_its_rank(tmp_path):
    assert set(ranks(plant(tmp_path, "rank_3.log", "rank_3.log.1")).values()) == {3}


def test_a_fifo_is_listed_and_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "pipe.log")
    plant(tmp_path, "a.log")
    assert [s.path for s in discover([str(tmp_path)]).skipped] == ["pipe.log"]


def test_links_are_followed_inside_the_job_folder_only_and_nothing_is_read_twice(tmp_path):
    (tmp_path / "secret").write_bytes(LINE)
    job = tmp_path / "job"
    plant(job, "a.log", ".hidden/b.log")
    (job / "out.log").symlink_to(tmp_path / "secret")
    (job / "latest.log").symlink_to("a.log")
    (job / "b.log").symlink_to(".hidden/b.log")
    (job / "loop").symlink_to(job)
    os.link(job / "a.log", job / "same.log")
    found = discover([str(job)])
    assert [source.path for source in found.sources] == ["a.log", "b.log"]
    reasons = {skipped.path: skipped.reason for skipped in found.skipped}
    assert reasons["out.log"] == "link that leads out of the job folder"
    assert {"latest.log", "loop", "same.log"} <= set(reasons)


def test_a_link_that_the_user_names_is_followed(tmp_path):
    (tmp_path / "far.log").write_bytes(LINE)
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "a.log").symlink_to(tmp_path / "far.log")
    assert [s.real for s in discover([str(tmp_path / "job" / "a.log")]).sources] == [tmp_path / "far.log"]


def test_files_patterns_and_folders_can_be_given_together(tmp_path):
    plant(tmp_path, "a.log", "sub/rank_0.log", "sub/rank_1.log")
    found = discover([str(tmp_path / "sub" / "*.log"), str(tmp_path / "a.log"), str(tmp_path / "sub")])
    assert [s.path for s in found.sources] == ["a.log", "sub/rank_0.log", "sub/rank_1.log"]
    assert [s.index for s in found.sources] == [0, 1, 2]


def test_a_single_file_is_read_whatever_it_is_called(tmp_path):
    (tmp_path / "issue.md").write_bytes(LINE)
    assert [s.kind for s in discover([str(tmp_path / "issue.md")]).sources] == [SourceKind.LOG]


def test_missing_and_empty_inputs_are_errors_with_help(tmp_path):
    (tmp_path / "empty").mkdir()
    for path in ("gone", "*.none", "empty"):
        with pytest.raises(InputError) as caught:
            discover([str(tmp_path / path)])
        assert caught.value.exit_code == 3
        assert caught.value.help


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("torchrun-ml-n08.out", "ml-n08"),
        ("train_gx-a.log", "gx-a"),
        ("slurm-48213-rack2n17.out", "rack2n17"),
        ("ml-n08-stdout.log", "ml-n08"),
        ("log.tx7_stderr.txt", "tx7"),
        ("node-a.0.log", "node-a"),
        ("run-88-gn11.out", "gn11"),
        ("run-88.out", "run-88"),
        ("10.4.0.7.log", "10.4.0.7"),
        ("train-llm-worker-1.log", "train-llm-worker-1"),
        ("train-loss.log", "train-loss"),
        ("torchrun.log", "torchrun"),
        ("run-log.txt", "run-log"),
    ],
)
def test_a_host_is_named_without_the_words_of_its_launcher(name, host):
    assert file_host(name) == host


def test_files_named_after_launcher_and_host_tell_their_hosts(tmp_path):
    found = plant(tmp_path, "torchrun-ml-n08.out", "torchrun-ml-n09.out", "train.log")
    assert [found[name].host for name in sorted(found)] == ["ml-n08", "ml-n09", None]


def test_the_number_of_files_is_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(walk, "MAX_FILES", 3)
    plant(tmp_path, *(f"{n}.log" for n in range(5)))
    found = discover([str(tmp_path)])
    assert len(found.sources) == 3
    assert "limit" in found.skipped[0].reason


def test_a_name_that_is_no_utf8_can_be_printed(tmp_path):
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.log")).write_bytes(LINE)
    assert [s.path.encode() for s in discover([str(tmp_path)]).sources] == [b"\\xff.log"]


@given(st.integers(0, 99_999), st.integers(1, 7), st.sampled_from(["rank_{}.log", "rank{}.out", "x/rank.{}/stderr"]))
def test_zero_padding_never_changes_the_rank(rank, width, template):
    name = template.format(str(rank).zfill(width))
    assert read_name(tuple(name.split("/"))).rank == rank


HOSTS = st.sampled_from(
    [
        ("node-a", "node-b"),
        ("tx1", "tx2"),
        ("gpu-a1", "gpu-b7"),
        ("ip-10-1-71-205", "ip-10-1-90-12"),
        ("train-worker-0", "train-worker-1"),
        ("dgx-r7-01", "dgx-r7-02"),
        ("cn0", "cn1"),
        ("n17-gpu", "n18-gpu"),
        ("10.4.0.7", "10.4.0.8"),
    ]
)
PLACES = st.sampled_from(
    ["{host}.{n}.log", "{host}/rank_{n}.log", "{host}/out.{n}", "{host}_{n}.err", "{host}/{n}/log.txt"]
)


@settings(max_examples=60, deadline=None)
@given(HOSTS, PLACES, st.integers(1, 3), st.booleans())
def test_renaming_hosts_never_changes_ranks(hosts, place, per_host, local):
    with tempfile.TemporaryDirectory() as folder:
        expected = {}
        for number in range(2 * per_host):
            n = number % per_host if local else number
            path = place.format(host=hosts[number // per_host], n=n)
            expected[path] = n
            (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / path).write_bytes(LINE)
        found = {source.path: source for source in discover([folder]).sources}
    if not local:
        assert ranks(found) == expected
    elif per_host > 1:
        assert {path: source.local_rank for path, source in found.items()} == expected
        assert set(ranks(found).values()) == {None}
    assert {source.host for source in found.values()} <= {*hosts, None}


@given(st.lists(st.text(min_size=1, max_size=12), max_size=6))
def test_any_names_can_be_asked_for_hosts_and_ranks(names):
    assert host_family(set(names)) <= set(names)
    read_name(tuple(names) or ("x",))
