"""The admin's settings of the epilog, from a file that nobody else can write."""

from __future__ import annotations

import os
import stat
import tomllib
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from aggregator.errors import InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_PATH = "/etc/denpex-agg/slurm.toml"
_MAX_BYTES = 64 << 10
_HELP = "`denpex-agg slurm-epilog --print slurm.toml` shows all keys"
_RANGES = {
    "time_limit_s": (1, 3600), "memory_mb": (256, 1 << 20), "read_mb": (1, 1 << 20), "max_files": (1, 200_000),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Config:
    """What the epilog may use and where it writes. Of the places, those that are empty are not used."""

    report_dir: str = ""
    in_job_folder: bool = True
    log_roots: tuple[str, ...] = ()
    time_limit_s: float = 20.0
    memory_mb: int = 2048
    read_mb: int = 1024
    """Of all logs together; of longer ones the ends are read."""
    max_files: int = 20_000
    exclude_file: str = ""
    prometheus: str = ""
    webhook: str = ""
    kernel: bool = True


def load_config(path: str | None) -> Config:
    """The settings of a file; those of the default place if `path` is None, where none need be.

    Raises:
        InputError: it cannot be read, others could have written it, or it says something that is not understood.
    """
    where = DEFAULT_PATH if path is None else path
    try:
        data = _trusted_bytes(where)
    except FileNotFoundError:
        if path is None:
            return Config()
        raise InputError("no such configuration file", where=where, help=_HELP) from None
    except OSError as error:
        raise InputError(f"the configuration is not read: {error.strerror or error}", where=where) from None
    try:
        return _checked(tomllib.loads(data.decode()))
    except (ValueError, RecursionError) as error:  # broken TOML and UTF-8 are ValueErrors
        raise InputError(str(error), where=where, help=_HELP) from None


def _trusted_bytes(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with open(fd, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("it is no regular file")
        if status.st_uid not in {0, os.geteuid()}:
            raise OSError("it belongs neither to root nor to who runs this")
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise OSError("others than its owner can write it; chmod go-w")
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise OSError(f"it is larger than {_MAX_BYTES >> 10} KiB")
    return data


def _checked(told: Mapping[str, object]) -> Config:
    types = {field.name: type(field.default) for field in fields(Config)}
    values: dict[str, object] = {}
    for key, value in told.items():
        if key not in types:
            raise ValueError(f"there is no key `{key}`")
        values[key] = _value(key, value, types[key])
    config = Config(**values)  # type: ignore[arg-type]  # each was made to fit its field
    if config.prometheus and not config.prometheus.endswith(".prom"):
        raise ValueError("`prometheus` must end with .prom: node_exporter reads no other files")
    if config.webhook:
        from aggregator.notify.webhook import WebhookNotifier  # noqa: PLC0415 - brings the network in

        try:
            WebhookNotifier(config.webhook)
        except UsageError as error:
            raise ValueError(error.what.replace("--webhook", "`webhook`")) from None
    return config


def _value(key: str, value: object, kind: type) -> object:
    """A value as its field has it; a path must be absolute, since the working folder is `/`."""
    if kind is tuple:
        if not isinstance(value, list) or not all(isinstance(item, str) and item.startswith("/") for item in value):
            raise ValueError(f"`{key}` must be a list of absolute paths")
        return tuple(value)
    if kind is str:
        if not isinstance(value, str) or "\0" in value:
            raise ValueError(f"`{key}` must be a string")
        if value and key != "webhook" and not value.startswith("/"):
            raise ValueError(f"`{key}` must be an absolute path")
        return value
    if kind is bool:
        if not isinstance(value, bool):
            raise ValueError(f"`{key}` must be true or false")
        return value
    low, high = _RANGES[key]
    is_number = isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
    if not is_number or not low <= value <= high:  # type: ignore[operator]  # it is a number here
        raise ValueError(f"`{key}` must be {'a whole number' if kind is int else 'a number'} from {low} to {high:,}")
    return kind(value)
