"""Takes out of a job's files whose it was: hosts, users, addresses, folders and jobs get other names, always the same.

What tells how a job failed stays: ranks, times, names of source files and functions, paths of libraries.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from string import ascii_lowercase
from typing import TYPE_CHECKING

from ahocorasick_rs import BytesAhoCorasick

from parsers.later import later

if TYPE_CHECKING:
    from aggregator.case import Case

_MAIL = later(r"\b[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}\b")
_IPV4 = later(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.]*\d)")
_IPV6 = later(r"(?<![\w:.])(?:[0-9a-fA-F]{1,4}:){3,7}(?::|[0-9a-fA-F]{1,4})(?:[0-9a-fA-F]{1,4})?(?![\w:])")
_PATH = later(r"(?<![\w/.:~-])/(?:[\w.@+=~%-]{1,255}/){1,40}[\w.@+=~%-]{0,255}")
_USER = later(
    r"(?:/(?:home|Users)/|(?i:\b(?:user(?:name)?|logname|slurm_job_user|owner)\b[\"']?\s{0,2}[=:]\s{0,2}[\"']?))"
    r"(?P<name>[a-z_][a-z0-9_.-]{2,31})\b"
)
_HOST = later(
    r"(?i)\b(?:host|hostname|node|nodename|nodelist|master_addr|slurmd_nodename|slurm_job_nodelist)[\"']?"
    r"\s{0,2}[=: ]\s{0,2}[\"']?"
    r"(?P<name>[a-z][a-z0-9-]{1,62}[0-9](?:\.[a-z0-9-]{1,63}){0,6})\b"
)
_DOMAIN = later(
    r"(?<![\w.@/-])[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,6}"
    r"\.(?:com|org|net|edu|gov|internal|local|lan|corp|cluster)(?![\w.-])"
)
_PUBLIC = (
    "pytorch.org",
    "github.com",
    "nvidia.com",
    "huggingface.co",
    "python.org",
    "example.org",
    "kernel.org",
    "svc.local",
)
_JOB = later(
    r"(?i)(?:\bjob[-_ ]?name[\"']?\s{0,2}[=:]\s{0,2}[\"']?|--job-name[= ]|\s-J\s)(?P<name>[A-Za-z][\w.-]{2,63})"
)
_NUMBERS = re.compile(r"[\d-]+$")
_IN_WORD = re.compile(rb"[A-Za-z0-9_]")
_SYSTEM = frozenset({
    "bin", "boot", "dev", "etc", "lib", "lib64", "opt", "proc", "root", "run", "sbin", "sys", "tmp", "usr", "var",
})  # fmt: skip
"""Folders at the root that every machine has: what is below them is no user's, but for `root`'s and `tmp`'s names."""
_COMMON = frozenset({
    ".venv", "Users", "anaconda3", "bin", "checkpoint", "checkpoints", "ckpt", "conda", "data", "dataset",
    "datasets", "dist-packages", "envs", "eval", "examples", "fsx", "gpfs", "home", "lib", "lib64", "log", "logs",
    "lustre", "miniconda3", "mnt", "model", "models", "nfs", "output", "outputs", "project", "projects", "results",
    "runs", "scratch", "scripts", "shared", "site-packages", "src", "torch", "train", "training", "transformers",
    "venv", "work", "workspace",
})  # fmt: skip
_LIBRARIES = frozenset({"site-packages", "dist-packages", "lib-dynload"})
_PLAIN = frozenset({
    "cuda", "epoch", "error", "false", "gpu", "host", "info", "job", "local", "localhost", "master", "nccl", "node",
    "none", "null", "python", "rank", "ranks", "root", "slurm", "stderr", "stdout", "step", "train", "true",
    "unknown", "user", "worker",
})  # fmt: skip
"""Words that logs are full of: as names they tell nobody, and to replace them would change what lines say."""
_SHORT = 3
_MOST = 100_000
"""Names of a kind that are told apart; no job has more, and who writes more wants our memory."""


def _numbered(prefix: str) -> Callable[[int], str]:
    return lambda number: f"{prefix}{number}"


def _lettered(number: int) -> str:
    letters = ""
    while True:
        letters = ascii_lowercase[number % 26] + letters
        number = number // 26 - 1
        if number < 0:
            return f"host{letters}"


@dataclass
class _Names:
    """Words and what stands for them, in the order in which they were met."""

    make: Callable[[int], str]
    given: dict[str, str] = field(default_factory=dict)

    def of(self, word: str) -> str:
        if word not in self.given:
            if len(self.given) >= _MOST:
                return self.make(0)
            self.given[word] = self.make(len(self.given) + 1)
        return self.given[word]


class _Words:
    """Replaces words, however many there are, in a time that depends on the text alone."""

    def __init__(self, words: Mapping[str, str], end: str) -> None:
        """`end` is a pattern of what must not follow a word; before it there is no letter, digit or underscore."""
        self._words = [(word.encode("utf-8", "surrogatepass"), with_.encode()) for word, with_ in words.items()]
        self._finder = BytesAhoCorasick([word for word, _ in self._words])
        self._end = re.compile(end.encode())

    def replaced(self, text: str) -> str:
        """The text with the first of all words, the longest of those that begin at one place."""
        data = text.encode("utf-8", "surrogatepass")
        found = self._finder.find_matches_as_indexes(data, overlapping=True)
        at, parts = 0, list[bytes]()
        for number, start, end in sorted(found, key=lambda match: (match[1], -match[2])):
            if (
                start >= at
                and not _IN_WORD.match(data, start - 1 if start else len(data))
                and not self._end.match(data, end)
            ):
                parts += (data[at:start], self._words[number][1])
                at = end
        return b"".join([*parts, data[at:]]).decode("utf-8", "surrogatepass") if parts else text


class Anonymiser:
    """Replaces names in texts that follow each other; the same name gets the same word in all of them.

    Args:
        hosts: the names of the job's machines.
        texts: all lines of the job, which tell users and job names.
    """

    def __init__(self, hosts: Iterable[str], texts: Iterable[str]) -> None:
        self._addresses = _Names(lambda number: f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}")
        self._mails = _Names(lambda number: f"user{number}@example.org")
        self._folders = _Names(_numbered("dir"))
        users, jobs, told = set[str](), set[str](), set[str]()
        for text in texts:
            for names, pattern in ((told, _HOST), (users, _USER), (jobs, _JOB)):
                if len(names) < _MOST:
                    names.update(found["name"] for found in pattern.finditer(text))
        words: dict[str, str] = {}
        for names, make in ((users, _numbered("user")), (jobs - users, _numbered("job"))):
            kept = sorted(name for name in names if name.lower() not in _PLAIN)
            words |= {name: make(number) for number, name in enumerate(kept, 1)}
        self._words = words
        stems: dict[str, str] = {}
        for host in sorted({*hosts, *told}):
            short = host.split(".", 1)[0]
            stem = _NUMBERS.sub("", short)
            if not stem or stem.lower() in _PLAIN or host.replace(".", "").isdigit():
                continue
            if (
                stem != short and len(stem) >= _SHORT
            ):  # numbered hosts keep their numbers, in lists such as gpu[01-04] too
                stems.setdefault(stem, _lettered(len(stems)))
            else:
                stems.setdefault(short, _lettered(len(stems)))
            if "." in host:
                words[host.split(".", 1)[1]] = "example.org"
        self._hosts = _Words(stems, r"\.*[A-Za-z_]") if stems else None
        self._named = _Words(words, r"[A-Za-z0-9_]") if words else None

    def text(self, text: str) -> str:
        """One line without names."""
        if "@" in text:
            text = _MAIL.sub(lambda found: self._mails.of(found[0]), text)
        if "." in text:
            text = _DOMAIN.sub(self._domain, text)
        if self._hosts is not None:
            text = self._hosts.replaced(text)
        if "/" in text:
            text = _PATH.sub(self._path, text)
        if self._named is not None:
            text = self._named.replaced(text)
        text = _IPV4.sub(self._address, text)
        return _IPV6.sub(self._address, text) if text.count(":") >= _SHORT else text

    def name(self, path: str) -> str:
        """The name of a file below the job's folder, in the same form."""
        return "/".join(map(self.text, path.split("/")))

    def value(self, value: object) -> object:
        """A value of JSON, without names in its texts."""
        if isinstance(value, str):
            return "\n".join(map(self.text, value.split("\n")))
        if isinstance(value, dict):
            return {self.value(key) if isinstance(key, str) else key: self.value(item) for key, item in value.items()}
        return [self.value(item) for item in value] if isinstance(value, list | tuple) else value

    def _domain(self, found: re.Match[str]) -> str:
        host, _, domain = found[0].partition(".")
        return found[0] if f".{found[0]}".endswith(_PUBLIC) or domain in self._words else f"{host}.example.org"

    def _path(self, found: re.Match[str]) -> str:
        _, *folders, last = found[0].split("/")
        if folders[0] in _SYSTEM - {"root", "tmp", "opt", "var"}:
            return found[0]
        kept, in_library = [], False
        for folder in folders:
            in_library = in_library or folder in _LIBRARIES
            is_plain = in_library or folder in _COMMON or folder in _SYSTEM or folder in self._words
            plain = is_plain or folder.startswith("python3") or not any(map(str.isalpha, folder))
            kept.append(folder if plain else self._folders.of(folder))
        return "/".join(("", *kept, last))

    def _address(self, found: re.Match[str]) -> str:
        try:
            address = ipaddress.ip_address(found[0])
        except ValueError:
            return found[0]
        if address.is_loopback or address.is_unspecified:
            return found[0]
        return self._addresses.of(found[0])


def hosts_of(case: Case) -> set[str]:
    """All names of machines that a job tells."""
    verdict, judged = case.verdict, case.judged
    hosts = {*verdict.job.hosts, *(clock.host for clock in verdict.clocks)}
    if judged is not None:
        hosts |= {*judged.table.hosts, *judged.table.host_of_rank.values(), *judged.table.log_hosts}
        hosts |= {source.host for source in judged.evidence.sources}
        hosts |= set(_hosts_in(judged.evidence.signals()))
    return {host for host in hosts if host}


def _hosts_in(signals: Iterable[object]) -> Iterator[str | None]:
    for signal in signals:
        yield getattr(signal, "host", None)
        yield getattr(signal, "fields", {}).get("host")
