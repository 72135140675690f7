"""What a file is taken for: the kernel's, a status, a dump, a log, or nothing that is read."""

import random

import pytest
from job_folders import LINE, plant, ranks

from aggregator.discover import discover
from parsers.records import SourceKind

KMSG = b"[884213.338117] NVRM: Xid (PCI:0000:db:00): 31, pid=7, name=python\n" * 3
SYSLOG = b"Feb  3 04:05:06 node-b kernel: NVRM: Xid (PCI:0000:db:00): 79\n" * 3


SEL = b" 1a1 | 12/01/2031 | 06:20:33 | Fan FAN1 | Lower Critical going low | Asserted\n" * 3


@pytest.mark.parametrize(
    ("name", "data", "host"),
    [
        ("dmesg-node-2.txt", KMSG, "node-2"),
        ("cn214.dmesg", KMSG, "cn214"),
        ("node4-dmesg.txt", KMSG, "node4"),
        ("dmesg-T.txt", KMSG, None),
        ("jwb0612.journal.txt", KMSG, "jwb0612"),
        ("dgx-h-021.dmesg-iso.log", KMSG, "dgx-h-021"),
        ("dmesg-dgx-h-021.txt", KMSG, "dgx-h-021"),
        ("all-dmesg-node-2.txt", KMSG, "node-2"),
        ("hgx-b/dmesg", KMSG, "hgx-b"),
        ("dmesg-tx-c.txt", KMSG, "tx-c"),
        ("dmesg/hgx035.txt", KMSG, "hgx035"),
        ("dmesg/today.txt", KMSG, None),
        ("kern.log", SYSLOG, None),
        ("extract.txt", SYSLOG, None),
        ("extract2.txt", KMSG, None),
        ("node-2-ipmi-sel.txt", SEL, "node-2"),
        ("events of node-3", SEL, None),
    ],
)
def test_kernel_extracts_are_known_by_name_or_content(tmp_path, name, data, host):
    source = plant(tmp_path, files={name: data, "a.log": LINE})[name]
    assert (source.kind, source.host) == (SourceKind.KERNEL, host)


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("sacct.txt", "scheduler"),
        ("kubectl-describe-pods.txt", "scheduler"),
        ("df.txt", "system"),
        ("nvidia-smi.txt", "system"),
        ("submit.sbatch", "script"),
        ("train.py", "script"),
        ("ds_config.json", "config"),
        ("conf/run.yaml", "config"),
        ("README", "doc"),
        ("notes.md", "doc"),
    ],
)
def test_what_only_quotes_errors_is_status(tmp_path, name, layout):
    source = plant(tmp_path, files={name: b"RuntimeError: CUDA out of memory\n", "a.log": LINE})[name]
    assert (source.kind, source.layout) == (SourceKind.STATUS, layout)


DUMP = b"\x80\x02}q\x00(X\x07\x00\x00\x00entriesq\x01]q\x02u."
DUMP_JSON = b'{"version": "2.4", "pg_config": {}, "entries": []}'


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("nccl_trace_rank_11", DUMP),
        ("comm_lib_trace_rank_11", DUMP),
        ("my_prefix_11", DUMP),
        ("fr/nccl_trace_rank_11.json", DUMP_JSON),
        ("dump11.json", DUMP_JSON),
    ],
)
def test_flight_recorder_dumps_carry_the_global_rank_at_the_end_of_their_name(tmp_path, name, data):
    source = plant(tmp_path, files={name: data, "a.log": LINE})[name]
    assert (source.kind, source.rank) == (SourceKind.FLIGHT_RECORDER, 11)


def test_checkpoints_archives_binaries_and_hidden_files_are_listed_with_a_reason(tmp_path):
    binary = random.Random(1).randbytes(4096)
    names = {"m.pt": b"x", "logs.tar.gz": b"x", "core.71": binary, ".git/config": b"x", ".env": b"KEY=1"}
    plant(tmp_path, "a.log", files=names)
    found = discover([str(tmp_path)])
    assert [source.path for source in found.sources] == ["a.log"]
    reasons = {skipped.path: skipped.reason for skipped in found.skipped}
    assert set(reasons) == {"m.pt", "logs.tar.gz", "core.71", ".git/", ".env"}
    assert reasons["logs.tar.gz"] == "archive: unpack it first"
    assert reasons["core.71"] == "binary file"


def test_holes_of_a_sparse_file_and_utf16_are_text(tmp_path):
    found = plant(tmp_path, files={"sparse.log": b"\0" * 5000 + LINE, "ps.log": "step 5\r\n".encode("utf-16")})
    assert set(found) == {"sparse.log", "ps.log"}
    assert found["ps.log"].compression is None


def test_an_empty_rank_file_is_a_source(tmp_path):
    assert ranks(plant(tmp_path, files={"rank_0.log": LINE, "rank_1.log": b""})) == {"rank_0.log": 0, "rank_1.log": 1}
