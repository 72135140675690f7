"""What a file is, by its name and its first bytes: a log, the kernel's, a dump, or something saved beside them."""

from __future__ import annotations

import re

from aggregator.jsonarray import begins_records
from aggregator.layouts import is_log_name, plain_name, stem
from parsers.later import later
from parsers.records import SourceKind

_KERNEL_WORD = later(
    r"(?i)(?:^|(?<=[._-]))(?:(?:all|full)[._-])?(?:dmesg|kern(?:el)?|journal(?:ctl)?|syslog|messages|fabricmanager|xid|nvrm"
    r"|ipmi(?:tool)?|bmc|sel|elist|list)(?:[._-](?:all|full|iso|[thwx]))*(?=$|[._-])"
)
_DUMP_NAME = later(
    r"(?:nccl|comm_lib|fr|flight_recorder|gloo|pg)_?trace_rank_?\d+(?:\.(?:json|pkl|pickle))?$", re.IGNORECASE
)
_DUMP_KEYS = (b"entries", b"pg_config", b"pg_status")
_KERNEL_NAME = later(
    r"(?:^|[._-])(?:dmesg|ipmi(?:tool)?|bmc|journal(?:ctl)?|syslog)(?:$|[._-])|^kern(?:el)?\.log|^messages(?:$|\.\d)",
    re.IGNORECASE,
)
_KERNEL_LINE = later(
    rb"^(?:<\d{1,3}>)?(?:\[ *\d{1,9}\.\d{6}\]|\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\]) "
    rb"|^(?:[A-Z][a-z]{2} [ \d]\d|\d{4}-\d\d-\d\dT)[\d:.+Z -]{0,40} ?[\w.-]{1,64} kernel: ",
    re.MULTILINE,
)
_EVENTS = later(rb"(?: {0,4}[0-9a-f]{1,5} \| (?:\d\d/\d\d/\d{2,4} \| \d\d:\d\d:\d\d|Pre-Init)[^\n]*\n){2}")
"""The event log of a machine's management controller."""
_KERNEL_TALK = later(
    rb"NVRM|oom-kill|[Oo]ut of memory: Kill|pcieport|mlx5_core|nvidia|kernel:|audit:|EXT4-fs|XFS|systemd"
)
_STATUS_NAMES = tuple(
    (layout, later(pattern, re.IGNORECASE))
    for layout, pattern in (
        ("scheduler", r"(?:sacct|scontrol|squeue|sinfo|seff|bjobs|qstat|bhist)(?:[._-].*)?"),
        ("scheduler", r"kubectl[._-](?:describe|get|events).*|describe[._-](?:pod|node|job)s?\b.*|events\.txt"),
        ("system", r"(?:df|free|ps|top|lspci|lscpu|lsof|uptime|mount|ulimit|ibstat|numactl)(?:[._-].*)?\.txt"),
        ("system", r"(?:nvidia-smi|rocm-smi|dcgmi|nvidia-bug-report|ibv_devinfo|collect_env)(?:[._-].*)?"),
        ("script", r".*\.(?:sh|bash|zsh|sbatch|slurm|pbs|lsf|qsub)|Makefile|Dockerfile.*"),
        ("script", r".*\.(?:pyi?|ipynb|c|cc|cpp|cuh?|h|hpp|rs|go|java|js|ts|jl|pl|lua)"),
        ("config", r".*\.(?:ya?ml|json|json5|toml|ini|cfg|conf|properties|env|lock)"),
        ("config", r"(?:requirements|pip-?(?:freeze|list)|environment|env|conda-?list)(?:[._-][\w-]*)?(?:\.txt)?"),
        ("config", r"(?:hostfile|hosts|hostlist|machinefile|nodelist)(?:[._-][\w-]*)?(?:\.txt)?"),
        ("doc", r"(?:README|LICEN[CS]E|NOTICE|CHANGELOG|NOTES?|TODO|COPYING|AUTHORS)(?:\.(?:txt|[a-z]{2}))?"),
        ("doc", r".*\.(?:md|rst|adoc|tex|html?|diff|patch)"),
        ("table", r".*\.(?:csv|tsv)"),
    )
)
_A_STATUS_NAME = later("|".join(f"(?:{pattern.pattern})" for _, pattern in _STATUS_NAMES), re.IGNORECASE)
_STATUS_HEAD = later(
    rb"\s*JobID[ |].*State|JobId=\d+ (?:ArrayJobId=\S+ ArrayTaskId=\S+ )?JobName="
    rb"|Name: +\S+\nNamespace: +|LAST SEEN +TYPE +REASON"
    rb"|apiVersion: v1\r?\n(?:items:|kind: (?:Pod|List|Event)\b)"
)
_DATA_SUFFIX = later(
    r"(?i)\.(?:pt|pth|safetensors|distcp|bin|ckpt|npy|npz|parquet|arrow|feather|h5|hdf5|onnx|gguf|tfrecord|idx|nsys-rep"
    r"|qdrep|sqlite|db|wandb|so|pyc|whl|png|jpe?g|gif|svg|pdf|mp4|wav|prof|pb)$|tfevents"
)
_OUR_REPORT = later(r"denpex-\d+(?:\.\d)?\.(?:txt|json)|.+\.(?:sarif|problems|github|prom|trace\.json)")
"""What the Slurm epilog leaves in a job's folder, and reports whose ending tells: they quote failures."""
_ARCHIVE = later(r"\.(?:tar|tgz|tbz2?|txz|zip|7z|rar)$|\.tar\.\w+$", re.IGNORECASE)


def skip_reason(name: str) -> str | None:
    """Why a file of this name is not worth opening, or None."""
    if _OUR_REPORT.fullmatch(name):
        return "a report, not a log"
    if _ARCHIVE.search(name):
        return "archive: unpack it first"
    if _DATA_SUFFIX.search(plain_name(name)) and not _DUMP_NAME.search(plain_name(name)):
        return "not a log: checkpoint, data or binary"
    return None


def kind_of(name: str, head: bytes) -> tuple[SourceKind, str | None]:
    """Kind of a file, and the layout of a status file, from its name and its first (decompressed) bytes."""
    name = plain_name(name)
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    as_json = text.startswith(b"{")
    if (head.startswith(b"\x80") or as_json) and (_DUMP_NAME.search(name) or _is_dump(head, as_json=as_json)):
        return SourceKind.FLIGHT_RECORDER, None
    if not head and _DUMP_NAME.search(name):  # its writer died before it wrote
        return SourceKind.FLIGHT_RECORDER, None
    if name == "error.json" or (
        as_json and re.match(rb'\{\s*"message"', text) and re.search(rb'"(?:py_callstack|extraInfo)"', text)
    ):
        return SourceKind.ERROR_JSON, None
    if _KERNEL_NAME.search(name) or _looks_like_kernel(head) or _EVENTS.match(head):
        return SourceKind.KERNEL, None
    if re.fullmatch(r"[0-9a-f]{12,64}-json\.log", name) or name.endswith(".jsonl"):
        return SourceKind.LOG, None
    status = None
    if _A_STATUS_NAME.fullmatch(name):
        status = next(layout for layout, pattern in _STATUS_NAMES if pattern.fullmatch(name))
    as_records = re.match(rb"\{[^\n]{2,}\}\r?\n\{", text) or begins_records(text)
    if status == "config" and name.endswith(".json") and as_records:
        return SourceKind.LOG, None
    if status in {None, "config"} and _STATUS_HEAD.match(text):
        status = "scheduler"
    if status is None and text.startswith(b"#!") and not is_log_name(name):
        status = "script"
    return (SourceKind.STATUS, status) if status else (SourceKind.LOG, None)


def dump_rank(name: str) -> int | None:
    """Global rank of a flight-recorder dump: its writer ends the name with it (fr.file.path), some add a suffix."""
    found = re.search(r"(\d+)(?:\.(?:json|pkl|pickle))?$", plain_name(name))
    return int(found[1]) if found else None


def kernel_host(parts: tuple[str, ...]) -> str:
    """`node-2` of `dmesg-node-2.txt` or `dmesg/node-2.txt`, empty if what is left of the name looks like no machine."""
    said = any(_KERNEL_NAME.search(name) for name in parts[-2:])
    rest = _KERNEL_WORD.sub("", stem(parts[-1])).strip("._-") if said else ""
    return rest if re.search(r"^[A-Za-z].*\d|[._-][a-z]$", rest) else ""


def _is_dump(head: bytes, *, as_json: bool) -> bool:
    if as_json:
        return b'"pg_config"' in head or (b'"entries"' in head and b'"collective_seq_id"' in head)
    return any(key in head for key in _DUMP_KEYS)


def _looks_like_kernel(head: bytes) -> bool:
    head = head[:4096]
    # What each form of a kernel line has; nearly all logs stop here.
    if not (head[:1] in {b"[", b"<"} or b"\n[" in head or b"\n<" in head or b" kernel: " in head):
        return False
    lines = [line for line in head.splitlines() if line.strip()][:-1][:40]
    misses = hits = 0
    for line in lines:
        if _KERNEL_LINE.match(line) is not None:
            hits += 1
        else:
            misses += 1
            if misses * 10 > len(lines) * 4:
                return False
    return hits > 0 and _KERNEL_TALK.search(head) is not None
