"""What the names of files tell: whose words they hold.

A layout is one small pure function in `LAYOUTS`: path in, `Hints` or None out; the first that answers wins. Names that
mean something only beside their siblings (`log.0`, `log.1` …) are judged in `discover.py`. A wrong global rank is the
worst mistake that can be made here, so a number is one only where the name says `rank`, or a launcher's own pattern
puts it there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parsers.later import later

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Hints:
    """What one name tells; the fields are those of `Source`."""

    layout: str
    rank: int | None = None
    local_rank: int | None = None
    node_rank: int | None = None
    host: str | None = None
    stream: str | None = None
    attempt: int | None = None
    pid: int | None = None
    job_id: str | None = None
    group: str | None = None
    around: str = ""
    """What the name holds beside its rank (`node-b` of `node-b_rank3.log`): a host, if its siblings agree."""


_COMPRESSED = later(r"\.(?:gz|bz2|xz|zst|zstd)$", re.IGNORECASE)
_COMPRESSED_ENDS = frozenset({".gz", "bz2", ".xz", "zst", "std"})
_EXTENSION = later(r"(?:\.(?:log|txt|out|err|stdout|stderr|output|tail|head))+$", re.IGNORECASE)
_ROTATED = later(
    r"^(?P<base>.+?)[.-](?P<mark>\d{1,3}|\d{4}-?\d\d-?\d\d(?:[T_-]?\d{2}(?:[:-]?\d{2}(?:[:-]?\d{2})?)?)?|\d{10})$"
)


def plain_name(name: str) -> str:
    """The name without the suffix of a compressor."""
    return _COMPRESSED.sub("", name) if name[-3:].lower() in _COMPRESSED_ENDS else name


def stem(name: str) -> str:
    """The name without what only says that it is a log."""
    return _EXTENSION.sub("", plain_name(name))


def is_log_name(name: str) -> bool:
    """Whether the name ends as those of logs do."""
    return _EXTENSION.search(name) is not None


def rotation(name: str) -> tuple[str, str] | None:
    """`("train.log", "2")` for `train.log.2.gz`, as logrotate and Python's handlers name old parts; else None.

    Ranks are numbered like this too (`log.1`): only the caller can see whether the base itself exists.
    """
    name = plain_name(name)
    found = _ROTATED.match(name) if name[-1:].isdigit() else None
    return (found["base"], found["mark"]) if found else None


def stream_of(parts: tuple[str, ...]) -> str | None:
    """`stdout` or `stderr` where the file or its folder says so; a bare `.out` may hold both, so it says nothing."""
    name = plain_name(parts[-1]).lower()
    for text in (name, parts[-2].lower() if len(parts) > 1 else ""):
        if "err" not in text and "stdout" not in text:
            continue
        if re.search(r"(?:^|[^a-z])(?:stderr|err)(?:$|[^a-z])", text):
            return "stderr"
        if re.search(r"(?:^|[^a-z])stdout(?:$|[^a-z])", text):
            return "stdout"
    return None


_TORCHRUN = later(
    r"^(?P<group>.*?)/?(?<![^/])attempt_(?P<attempt>\d+)/"
    r"(?:(?P<local>\d+)/(?:(?P<stream>stdout|stderr)\.log|error\.json)|(?:filtered_)?(?P<merged>stdout|stderr)\.log)$"
)


def torchrun_log_dir(parts: tuple[str, ...]) -> Hints | None:
    """`<run-id>_<8 chars>/attempt_<n>/<local rank>/…` (torch.distributed.elastic.multiprocessing.api, 1.13 on).

    The folder names neither the node nor the global rank. One folder is one agent, so it is the group.
    """
    path = "/".join((*parts[:-1], plain_name(parts[-1])))
    found = _TORCHRUN.match(path) if "attempt_" in path else None
    if found is None:
        return None
    local = found["local"]
    return Hints(
        "torchrun-logdir" if local else "torchrun-merged",
        local_rank=int(local) if local else None,
        stream=found["stream"] or found["merged"],
        attempt=int(found["attempt"]),
        group=found["group"] or ".",
    )


_LAUNCHER_NAMES = tuple(
    (layout, later(pattern, re.IGNORECASE))
    for layout, pattern in (
        # NeMo exp_manager.py
        ("nemo-files", r"nemo_log_globalrank-(?P<rank>\d+)_localrank-(?P<local_rank>\d+)\.txt"),
        # DeepSpeed launcher/launch.py --enable_each_rank_log
        ("deepspeed-each-rank", r"\d{14}_rank(?P<rank>\d+)\.log"),
        # submitit core/utils.py JobPaths: %j_%t_log.out; arrays are %A_%a_%t
        ("submitit", r"(?P<job_id>\d+(?:_\d+)?)_(?P<rank>\d+)_log\.(?P<ext>out|err)"),
        # Slurm's default for arrays, slurm-%A_%a.out: tasks of an array are jobs, not ranks
        ("slurm-array", r"slurm-(?P<job_id>\d+_\d+)\.(?P<ext>out|err|log)"),
        ("slurm-out", r"slurm-(?P<job_id>\d+)\.(?P<ext>out|err|log)"),
        # PBS and Grid Engine, and Slurm users who copy them with %x.o%j
        ("job-out", r".+\.(?P<ext>o|e)(?P<job_id>\d{3,})"),
        # Ray _private/node.py
        ("ray-worker", r"worker-[0-9a-f]{6,}-[0-9a-f]+-(?P<pid>\d+)\.(?P<ext>out|err)"),
        ("ray-core", r"python-core-(?:worker|driver)-[0-9a-f]+_(?P<pid>\d+)\.log"),
        ("ray-driver", r"job-driver-.+\.log"),
        ("ray-system", r"(?:raylet|gcs_server|monitor|log_monitor|dashboard\w*|runtime_env_agent)\.(?:out|err|log)"),
        # docker's json-file driver
        ("docker-json", r"[0-9a-f]{64}-json\.log|[0-9a-f]{12}-json\.log"),
        # NCCL_DEBUG_FILE with %h and %p (src/debug.cc)
        ("nccl-debug-file", r"nccl(?:[._-]?debug)?[._-](?P<host>[a-z][\w-]*?)[._-](?P<pid>\d+)(?:\.(?:log|txt))?"),
        ("nccl-debug-file", r"nccl(?:[._-]?debug)?[._-](?P<pid>\d{4,})(?:\.(?:log|txt))?"),
    )
)


_A_LAUNCHERS_NAME = later(
    "|".join(re.sub(r"\?P<\w+>", "?:", pattern.pattern) for _, pattern in _LAUNCHER_NAMES), re.IGNORECASE
)


def launcher_names(parts: tuple[str, ...]) -> Hints | None:
    """Names that one launcher, scheduler or library makes, each with its source in the table."""
    name = plain_name(parts[-1]).removesuffix(".tail").removesuffix(".head")
    if _A_LAUNCHERS_NAME.fullmatch(name) is None:
        return None
    for layout, pattern in _LAUNCHER_NAMES:
        found = pattern.fullmatch(name)
        if found is None:
            continue
        told = found.groupdict()
        rank, local, pid = (int(v) if (v := told.get(key)) else None for key in ("rank", "local_rank", "pid"))
        # Slurm and PBS join both streams in the `out` file unless an `err` file was asked for too; Ray never does.
        stream = "stderr" if told.get("ext") in {"err", "e"} else "stdout" if layout == "ray-worker" else None
        return Hints(layout, rank, local, host=told.get("host"), stream=stream, pid=pid, job_id=told.get("job_id"))
    return None


_POD_LOG = later(r"^(?P<ns>[a-z0-9-]+)_(?P<pod>[a-z0-9.-]+)_(?P<uid>[0-9a-f-]{4,})$")
_UID = 8
"""Characters that a pod's uid has at least, unless the folder above is called after pods."""


def kubelet_pods(parts: tuple[str, ...]) -> Hints | None:
    """`<ns>_<pod>_<uid>/<container>/<restart>.log` (kubelet's /var/log/pods): restarts are attempts, pods are hosts."""
    if len(parts) < 3 or not re.fullmatch(r"\d+\.log(?:\.\d{8}-\d{6})?", plain_name(parts[-1])):  # noqa: PLR2004
        return None
    pod = _POD_LOG.match(parts[-3])
    if pod is None or (len(pod["uid"]) < _UID and not "/".join(parts[:-3]).endswith("pods")):
        return None
    return Hints("k8s-pod", host=pod["pod"], attempt=int(parts[-1].split(".")[0]), group="/".join(parts[:-1]))


_NUMBERED = later(
    r"(?P<q>(?:[a-z]+[._-])*?)(?P<scope>global|world|local|node|machine|host|group|[a-z]{1,3}p|tensor|pipeline|data"
    r"|expert|model|virtual|context|l)?[._-]?rank[._=-]{0,2}(?P<n>\d{1,7})(?![a-z0-9])",
    re.IGNORECASE,
)
_LOCAL_SCOPES = frozenset({"local", "l"})
_NODE_SCOPES = frozenset({"node", "machine", "host"})
_GLOBAL_SCOPES = frozenset({"", "global", "world"})


def named_rank(parts: tuple[str, ...]) -> Hints | None:
    """`rank_3.log`, `train_rank_00012.log`, `rank3.stdout.txt` (Composer), `rank.3/stderr` (Horovod, Open MPI).

    `local_rank` and `node_rank` say just that; a rank inside a tensor, pipeline or data group says nothing.
    """
    ranks: dict[str, int] = {}
    around = ""
    for text in (plain_name(parts[-1]), parts[-2] if len(parts) > 1 else ""):
        if "rank" not in text.lower():
            continue
        for found in _NUMBERED.finditer(text):
            before = text[: found.start("scope") if found["scope"] else found.start() + len(found["q"])]
            if before[-1:].isalpha():
                continue
            ranks.setdefault((found["scope"] or "").lower(), int(found["n"]))
            around = around or before.strip("._-")
        if ranks:
            break
    if not ranks:
        return None
    rank, local, node = (
        next((n for scope, n in ranks.items() if scope in scopes), None)
        for scopes in (_GLOBAL_SCOPES, _LOCAL_SCOPES, _NODE_SCOPES)
    )
    if rank is None and local is None and node is None:
        return Hints("group-rank")
    return Hints("rank-named", rank, local, node, stream=stream_of(parts), around=around)


LAYOUTS: tuple[Callable[[tuple[str, ...]], Hints | None], ...] = (
    torchrun_log_dir,
    kubelet_pods,
    launcher_names,
    named_rank,
)


def read_name(parts: tuple[str, ...]) -> Hints | None:
    """What the path (split at its slashes, relative to the job folder) tells by itself, None if nothing does."""
    return next((hints for layout in LAYOUTS if (hints := layout(parts)) is not None), None)


_COUNTED = (
    r"runs?|attempt|restart|retry|try|epoch|step|iter|part|chunk|exp|experiment|trial|fold|seed|version|ver|v|shard|stage"
    r"|phase|jobs?|array|round|cycle|day|backup|old|bak|checkpoint|ckpt|config|eval|test|val|slurm|group"
)
NO_RANK = later(_COUNTED)
_NO_HOST = later(
    _COUNTED
    + r"|ranks?|logs?|out|err|stdout|stderr|output|train|task|proc|process|r|p|local|lrank|localrank|error|debug"
)
"""Words that number something else than ranks, and than machines."""
_MACHINE = later(
    r"\d{1,3}(?:\.\d{1,3}){3}|ip(?:-\d{1,3}){4}|[a-z0-9.-]+-(?:master|worker|launcher|chief|ps|head)-\d+"
    r"|(?:node|host|hgx|dgx|compute|server|nid|cn|gn)(?:-?[a-z])?(?:-?\d+)+|(?:node|host|hgx|dgx|gpu)-[a-z]\d*"
    r"|r\d{1,3}(?:i\d{1,2}n|-?[tnu])\d{1,3}|x\d{1,5}c\d{1,2}s\d{1,2}b\d{1,2}n\d{1,2}",  # racks (HPE, Cray)
    re.IGNORECASE,
)


def host_family(names: set[str]) -> set[str]:
    """Those of the sibling `names` that are machines.

    Two or more that differ only in numbers or single letters (`tx-a`, `tx-b`; `n17-gpu`, `n18-gpu`), or one of a form
    that nothing else has (an address, a pod `…-worker-0`, `dgx-03`).
    """
    shapes: dict[tuple[str, ...], set[str]] = {}
    hosts = {name for name in names if _MACHINE.fullmatch(name)}
    for name in names:
        tokens = re.findall(r"[a-z]+|\d+|[^a-z\d]+", name.lower())
        if not tokens or not tokens[0].isalpha() or any(map(_NO_HOST.fullmatch, tokens)) or "/" in name:
            continue
        # `nodea` and `nodeb` have no border before the letter that tells them apart.
        tokens = [
            t for token in tokens for t in (re.findall(r"^(?:node|host)|.+", token) if len(token) > 1 else [token])
        ]
        shape = tuple("#" if t.isdigit() or (i and t.isalpha() and len(t) == 1) else t for i, t in enumerate(tokens))
        if "#" in shape:
            shapes.setdefault(shape, set()).add(name)
    return hosts.union(*(family for family in shapes.values() if len(family) > 1))


NODE_WORD = later(r"nodes?|hosts?|machine|server|noderank|nodeid")
LOCAL_WORD = later(r"gpus?|cuda|devices?|dev|lrank|local|localrank")
RANK_WORD = later(r"|logs?|out|err|std|worker|workers|proc|process|task|output|train|trainer|console|r|p|w|mpi|pe")


def from_zero(numbers: set[int]) -> bool:
    """Whether the numbers are 0 … N-1 for N of 2 or more; one in eight may be missing, as a lost file is."""
    return len(numbers) > 1 and min(numbers) == 0 and max(numbers) - len(numbers) < len(numbers) // 8


def last_word(prefix: str) -> tuple[str, str, str]:
    """The last word of the name before the number, what separates them, and what is before the word."""
    name = prefix.rpartition("/")[2]
    found = re.search(r"([A-Za-z]*)([^A-Za-z0-9]*)$", name)
    return (found[1].lower(), found[2], name[: found.start()]) if found else ("", "", name)


_RANK_TAIL = later(r"[._-](?:rank|worker|proc|process|task|r|w|p)$", re.IGNORECASE)


def host_part(prefix: str, *, of_rank: bool = False) -> str:
    """What of a name before its number may be a host; with `of_rank` without the word that tells what it counts."""
    name = prefix.rstrip("/._-")
    if of_rank and (found := _RANK_TAIL.search(name)):
        name = name[: found.start()]
    folder, _, last = name.rpartition("/")
    return folder.rpartition("/")[2] if folder and RANK_WORD.fullmatch(last.lower()) else last


def natural(text: str) -> tuple[tuple[str, int], ...]:
    """Sort key in which `rank_10` follows `rank_9`."""
    return tuple((word, int(number or 0)) for word, number in re.findall(r"(\D*)(\d{0,18})", text))


_ATTEMPT = later(r"(?:^|[/._-])(?:attempt|restart|retry|try)[._-]?(\d{1,4})(?=$|[/._-])", re.IGNORECASE)
_JOB_ID = later(r"(?:^|[._-])(?:j|job|jobid)?[._-]?([1-9]\d{3,11})(?=$|[._-])", re.IGNORECASE)
_DATE = later(r"(?:^|\D)(?:19|20)\d\d(?:$|[-_.]?[01]\d)")


_LAUNCHER_WORD = (
    r"torchrun|torchelastic|elastic|accelerate|deepspeed|mpirun|srun|sbatch|slurm|ray|launch(?:er)?|agent|train(?:er|ing)?"
    r"|jobs?|runs?|logs?|output|console|out|err|stdout|stderr"
)
_LAUNCHER_HEAD = later(rf"^(?:(?:{_LAUNCHER_WORD})[._-]+(?:\d+[._-]+)?)+(?=[A-Za-z0-9])", re.IGNORECASE)
_LAUNCHER_TAIL = later(rf"(?<=[A-Za-z0-9])(?:[._-]+(?:{_LAUNCHER_WORD}))+$", re.IGNORECASE)
_HOST_LIKE = later(r"[A-Za-z].*(?:[A-Za-z]\d{1,5}|[._-][A-Za-z])", re.IGNORECASE)


def file_host(name: str) -> str:
    """The name without log suffixes and task number: `node-a` of `node-a.0.log`, but all of `10.4.0.7`.

    What a launcher is called goes too where the rest looks like a machine: `ml-n08` of `torchrun-ml-n08.out`.
    """
    rest = stem(name)
    if _MACHINE.fullmatch(rest):
        return rest
    rest = re.sub(r"[._]\d{1,4}$", "", rest)
    bare = _LAUNCHER_TAIL.sub("", _LAUNCHER_HEAD.sub("", rest))
    return bare if _MACHINE.fullmatch(bare) or _HOST_LIKE.fullmatch(bare) else rest


def attempt_of(path: str) -> int | None:
    """The number after `attempt`, `restart` or `retry` anywhere in the path."""
    if not any(word in path.lower() for word in ("attempt", "restart", "try")):
        return None
    return int(found[1]) if (found := _ATTEMPT.search(path)) else None


def job_of(name: str) -> str | None:
    """The scheduler's job id: a number of four digits or more in a name without a date."""
    return found[1] if not _DATE.search(name) and (found := _JOB_ID.search(stem(name))) else None
