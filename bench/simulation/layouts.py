"""Writes a simulated job's folder in one of the layouts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from simulation.world import NEVER, PER_HOST, START, Layout, Line, World


def write(world: World, folder: Path) -> list[Path]:
    """Write the folder; returns its files. Modification times are the file server's, whose clock is right."""
    layout = world.setting.layout
    files = dict(_merged(world) if layout in {Layout.MERGED, Layout.SRUN} else _apart(world))
    cut = world.end < NEVER
    written = []
    for name, lines in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = [line for line in lines if line.at <= world.end] if cut else lines
        text = "".join(f"{line.text}\n" for line in kept)
        if len(kept) < len(lines):
            text += lines[len(kept)].text[: world.rng.randrange(40)]
        path.write_text(text, encoding="utf-8")
        last = START + (max((line.at for line in kept), default=0.0)) + 0.05
        os.utime(path, (last, last))
        written.append(path)
    if world.recorded:
        written += _error_files(world, folder)
    return written


def _apart(world: World) -> Iterable[tuple[str, Sequence[Line]]]:
    layout = world.setting.layout
    tee = world.rng.random() < 0.5
    for rank, lines in enumerate(world.rank_lines):
        host = world.hosts[world.host_of(rank)]
        if layout is Layout.RANKS:
            yield f"{host}/rank-{rank:05d}.log", lines
        elif layout is Layout.TORCHRUN:
            place = world.error_file(rank).removesuffix("error.json")
            yield f"{host}/{place}stderr.log", lines
            yield f"{host}/{place}stdout.log", []
        else:
            yield f"out/{host}.{rank}.log", lines
    if layout.elastic:
        for number, host in enumerate(world.hosts):
            told = world.agent_lines[number]
            if layout is Layout.TORCHRUN and tee:
                copies = [
                    _arrive(world, world.rank_lines[rank], f"[default{rank % PER_HOST}]:")
                    for rank in world.ranks_of(number)
                ]
                told = _in_order([told, *copies])
            yield f"{host}/torchrun.{'out' if layout is Layout.TORCHRUN else 'log'}", told
    if world.launcher_lines or not layout.elastic:
        yield "slurm-6.out", world.launcher_lines


def _merged(world: World) -> Iterable[tuple[str, Sequence[Line]]]:
    label = "{}: " if world.setting.layout is Layout.SRUN else "[rank{}]:"
    streams = [_arrive(world, lines, label.format(rank)) for rank, lines in enumerate(world.rank_lines)]
    name = "slurm-6.out" if world.setting.layout is Layout.SRUN else "train.log"
    yield name, _in_order([*streams, *world.agent_lines, world.launcher_lines])


def _arrive(world: World, lines: Sequence[Line], tag: str) -> list[Line]:
    """One writer's lines as a collector gets them: tagged, in their order, each up to 0.1 s late."""
    arrived, late = [], 0.0
    for line in lines:
        late = max(line.at + world.rng.uniform(0.0, 0.1), late)
        arrived.append(Line(late, tag + line.text))
    return arrived


def _in_order(streams: Iterable[Sequence[Line]]) -> list[Line]:
    """Lines of several writers by arrival; those of one writer keep their order."""
    return sorted((line for stream in streams for line in stream), key=lambda line: line.at)


def _error_files(world: World, folder: Path) -> list[Path]:
    written = []
    for rank, text in world.raised.items():
        end = world.exits[rank]
        if end is None or end.raised_at is None:
            continue  # its launcher ended it first
        host = world.host_of(rank)
        message = text.rstrip("\n").rsplit("\n", 1)[1]
        told = {"py_callstack": text + "\n", "timestamp": str(int(world.shown(host, end.raised_at)))}
        path = folder / world.hosts[host] / world.error_file(rank)
        path.write_text(json.dumps({"message": {"message": message, "extraInfo": told}}), encoding="utf-8")
        os.utime(path, (START + end.raised_at, START + end.raised_at))
        written.append(path)
    return written
