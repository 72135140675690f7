"""Turns decisions into the sentences and evidence of a verdict. Every claim cites a line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from aggregator.correlate.clocks import ClockModel
from aggregator.correlate.confidence import confidence
from aggregator.correlate.decide import Decision, external_ns, host_of
from aggregator.correlate.evidence import NS, JobEvidence, number
from aggregator.correlate.exits import Ending, Exit
from aggregator.correlate.identity import same_host
from aggregator.correlate.layers import FILE_SYSTEMS, join_file_system, layer
from aggregator.correlate.leads import Lead, Tier
from aggregator.correlate.phases import layer_of, location, phase_of_code, phase_of_kind, phase_of_stack, phase_of_text
from aggregator.correlate.stories import Story, in_order, last_step, marks_above
from aggregator.verdict import Candidate, Evidence, Failure, Status
from parsers.records import Role, Signal, StampQuality

_MAX_EVIDENCE = 8
_CRASHES = frozenset({"abort", "segfault", "bus_error"})
_DUMP_BELOW = 16
"""Lines below a crash's own within which the fault handler's stack of it begins."""
_ONE_HOST = 8
"""Ranks that a job may have and all be on the one host that its logs name."""

_SAYS = {
    "cuda_oom": "ran out of GPU memory",
    "host_oom": "ran out of host memory",
    "shm_exhausted": "ran out of shared memory",
    "gpu_ecc": "uncorrectable GPU memory error",
    "gpu_lost": "the GPU fell off the bus",
    "nvlink_error": "NVLink error",
    "gpu_xid": "GPU fault reported by the driver",
    "cuda_illegal_access": "illegal GPU memory access",
    "cuda_device_assert": "assertion inside a GPU kernel",
    "cuda_error": "CUDA error",
    "ib_error": "InfiniBand error",
    "network_error": "network connection lost",
    "rendezvous_failure": "rendezvous failed",
    "nccl_error": "NCCL error",
    "collective_timeout": "did not arrive at a collective",
    "collective_mismatch": "called another collective than its peers",
    "deadlock": "deadlock between process groups",
    "python_exception": "uncaught Python exception",
    "import_error": "import failed",
    "segfault": "segmentation fault",
    "abort": "aborted by native code",
    "killed": "killed (SIGKILL), sender unknown",
    "bus_error": "bus error",
    "dataloader_worker_died": "a DataLoader worker died",
    "data_error": "bad data",
    "nan_loss": "NaN in loss or gradients",
    "disk_full": "disk full",
    "storage_io": "storage I/O error",
    "checkpoint_corrupt": "checkpoint unreadable",
    "time_limit": "time limit reached",
    "preempted": "preempted",
    "cancelled": "cancelled from outside",
    "node_failure": "node failed",
    "config_error": "configuration error",
    "unknown": "failed for an unknown reason",
}


def says(kind: str) -> str:
    """A kind of failure in words."""
    return _SAYS.get(kind, kind)


def cite(evidence: JobEvidence, signal: Signal, why: str) -> Evidence:
    """One line as evidence."""
    resolution = signal.stamp.resolution_ns if signal.stamp is not None else NS
    own = signal.quality is StampQuality.OWN
    return Evidence(
        file=evidence.source(signal).path, line=max(1, signal.line),
        text=signal.text.strip() or signal.signature, why=why,
        rank=signal.rank, host=signal.host, time=signal.ns if own else None, time_resolution_ns=resolution,
    )  # fmt: skip


def failure(
    decision: Decision, evidence: JobEvidence, stories: Mapping[int, Story], signals: Sequence[Signal],
    exits: Sequence[Exit],
    known_hosts: Sequence[str], clocks: ClockModel,
) -> Failure:  # fmt: skip
    """The `first_failure` of a verdict."""
    lead = decision.leads[0]
    signal = lead.signal
    story = stories.get(lead.ranks[0]) if lead.ranks else None
    exception = signal.exception if signal is not None else None
    phase = _phase(lead, story, signals)
    join_file_system(lead, phase, signals, known_hosts)
    when, uncertainty, resolution = _time(lead, story)
    clock = clocks.hosts.get(host_of(lead) or "")
    if when is not None and clock is not None:
        when, uncertainty = when - clock.offset_ns, (uncertainty or 0.0) + clock.epsilon_ns / NS
    step = number(signal.fields.get("step")) if signal is not None else None
    ranks = decision.ranks if decision.status is not Status.UNDETERMINED else ()
    hosts = _one_name_each(
        decision.hosts
        or tuple(dict.fromkeys(s.host for s in lead.support if s.host))
        or (tuple(known_hosts) if len(known_hosts) == 1 and len(stories) <= _ONE_HOST else ()),
        known_hosts,
    )
    return Failure(
        status=decision.status, confidence=confidence(decision.basis), basis=decision.basis, kind=lead.kind,
        message=_message(lead), ranks=ranks, hosts=hosts, gpu=_gpu(lead),
        phase=phase, layer=layer(lead, story, signals),
        time=when, time_uncertainty_s=uncertainty, time_resolution_ns=resolution,
        step=step if step is not None else last_step(_progress(signal, story, signals)),
        exception=(exception.root_type or exception.type or None) if exception is not None else None,
        location=location(exception), evidence=tuple(_evidence(decision, evidence, stories)),
        reasons=tuple(_reasons(decision, stories, exits)), candidates=tuple(_candidates(decision)),
        would_settle=tuple(decision.would_settle),
    )  # fmt: skip


def _progress(signal: Signal | None, story: Story | None, signals: Sequence[Signal]) -> Sequence[Signal]:
    """The steps that the rank told of; of a fault without a rank those that are told above it."""
    if story is not None or signal is None:
        return story.progress if story is not None else ()
    return [mark for mark in marks_above(signal, signals) if mark.role is Role.PROGRESS]


def _one_name_each(hosts: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Hosts without those that are spelled twice, with and without their domain: without, where a log calls them so."""
    kept: list[str] = []
    for name in hosts:
        bare = name.partition(".")[0]
        host = bare if bare in known else name
        if not any(same_host(host, other) for other in kept):
            kept.append(host)
    return tuple(kept)


def outside(
    decision: Decision, external: Signal, evidence: JobEvidence, stories: Mapping[int, Story], hosts: Sequence[str]
) -> Failure:
    """The `first_failure` of a job that was ended from outside every rank."""
    kind = external.kind or "cancelled"
    steps = [step for story in stories.values() if (step := last_step(story.progress)) is not None]
    phase = _last_phase([s for story in stories.values() for s in story.phases + story.progress])
    when = external_ns(external)
    reason = f"nothing had failed before: {says(kind)}"
    return Failure(
        status=decision.status, confidence=confidence(decision.basis), basis=decision.basis, kind=kind,
        message=external.text.strip(),
        ranks=(), hosts=tuple(hosts), phase=phase or "unknown", layer=layer_of(kind, external.layer),
        time=when, time_uncertainty_s=1.0 if when is not None else None, step=max(steps, default=None),
        evidence=(cite(evidence, external, says(kind)),), reasons=(*decision.reasons, reason),
        candidates=tuple(_candidates(decision)),
    )  # fmt: skip


def _time(lead: Lead, story: Story | None) -> tuple[int | None, float | None, int]:
    signal = lead.signal
    if signal is not None and signal.ns is not None and signal.quality is StampQuality.OWN and signal.stamp is not None:
        return signal.ns, signal.stamp.resolution_ns / NS, signal.stamp.resolution_ns
    for other in lead.support if lead.tier is not Tier.HANG else ():  # what tells of a hang tells of it later
        if other.ns is not None and other.quality is StampQuality.OWN and other.stamp is not None:
            return other.ns, max(1.0, other.stamp.resolution_ns / NS), other.stamp.resolution_ns
    lo, hi = lead.lo, lead.hi
    if hi is None and signal is not None:
        hi = signal.until_ns
    if lead.exit is not None and lead.exit.ns is not None and (hi is None or lead.exit.ns < hi):
        hi = lead.exit.ns
    if lead.tier is Tier.HANG and lo is None and story is not None:
        lo = story.last_ns
    if hi is not None and lo is not None:
        return (hi, round(max(1.0, (hi - lo) / NS), 3), NS) if hi >= lo else (lo, 1.0, NS)
    if hi is not None:
        return hi, 5.0, NS
    if lo is not None:
        return lo, None, NS
    return None, None, NS


def _message(lead: Lead) -> str:
    if lead.signal is not None:
        exception = lead.signal.exception
        if exception is not None and exception.root_type and not exception.root_type.startswith("Fatal"):
            return f"{exception.root_type}: {exception.root_message}".split("\n", 1)[0].rstrip(": ")
        return lead.signal.text.strip() or says(lead.kind)
    if lead.exit is not None:
        return f"{says(lead.kind)}: {lead.exit.told}"
    return says(lead.kind)


def _gpu(lead: Lead) -> str | None:
    for signal in [s for s in (lead.signal, *lead.support) if s is not None]:
        for name in ("gpu", "bus_id"):
            if signal.fields.get(name):
                return signal.fields[name]
    return None


def _phase(lead: Lead, story: Story | None, signals: Sequence[Signal]) -> str:
    faults = [s for s in (lead.signal, *lead.support) if s is not None]
    faults += [s for s in signals if s.exception is not None and _belongs(s, lead.signal) and s not in faults]
    if lead.tier is Tier.FAULT and story is not None and not any(s.exception for s in faults):
        faults += [s for s in story.faults if s.exception is not None]  # what it died of shows where it was
    collective = lead.kind in {"collective_mismatch", "collective_timeout"}
    trained = bool(story is not None and story.progress)
    for signal in faults:
        phase = phase_of_stack(signal.exception, collective=collective) or phase_of_code(signal.fields.get("code", ""))
        if phase is not None and not (phase == "init" and trained):
            return phase
    for signal in faults:
        if signal.phase is not None and signal.phase != "unknown":
            return signal.phase
    marks = [*story.phases, *story.progress] if story is not None else []
    told = _last_phase(marks) or _last_phase([s for s in signals if s.role in {Role.PHASE, Role.PROGRESS}])
    if told in {"evaluation", "checkpoint", "data_loading"}:
        return told
    words = [signal.text for signal in faults if signal.kind in _CRASHES]
    if lead.tier is Tier.HANG and story is not None and not story.symptoms:
        words.append(story.last_text)
    said = next((phase for text in words if (phase := phase_of_text(text))), None)
    if said is not None:
        return said
    implied = phase_of_kind(lead.kind)
    if implied is not None:
        return implied
    if any(s.role is Role.PROGRESS for s in signals):
        return told or ("forward" if lead.kind == "cuda_oom" else "unknown")
    return told or "init"


def _belongs(dump: Signal, crash: Signal | None) -> bool:
    """Whether a stack is what Python's fault handler printed of a crash that native code told of right above."""
    if crash is None or crash.kind not in _CRASHES or dump.kind not in _CRASHES or dump.source != crash.source:
        return False
    same = dump.rank in {None, crash.rank} or crash.rank is None
    return same and 0 < dump.line - crash.line <= _DUMP_BELOW


def _last_phase(marks: Iterable[Signal]) -> str | None:
    phase = None
    for mark in in_order(marks):
        if mark.role is Role.PHASE or mark.phase is not None:
            phase = mark.phase
        elif phase not in {None, "evaluation", "checkpoint"}:
            phase = None
    return phase


def _evidence(decision: Decision, evidence: JobEvidence, stories: Mapping[int, Story]) -> Iterable[Evidence]:
    cited: list[Evidence] = []
    for lead in decision.leads[:_MAX_EVIDENCE]:
        if lead.signal is not None:
            cited.append(cite(evidence, lead.signal, f"{_who(lead)}: {says(lead.kind)}"))
        if lead.exit is not None:
            cited.append(cite(evidence, lead.exit.report, f"{_who(lead)} ended with {lead.exit.told}"))
        cited.extend(cite(evidence, other, _beside(other)) for other in lead.support[:2])
        if lead.dumped:
            cited.extend(_dump_lines(lead, evidence))
        if lead.signal is None and lead.exit is None and lead.ranks and lead.ranks[0] in stories:
            cited.extend(_last_line(lead.ranks[0], evidence, stories))
    seen: set[tuple[str, int]] = set()
    for item in cited:
        if (item.file, item.line) not in seen and len(seen) < _MAX_EVIDENCE:
            seen.add((item.file, item.line))
            yield item


def _beside(other: Signal) -> str:
    if other.kind is None or other.signature.startswith(("kernel.", *FILE_SYSTEMS)):
        return "its host's kernel"
    return f"same rank: {says(other.kind)}"


def _dump_lines(lead: Lead, evidence: JobEvidence) -> Iterable[Evidence]:
    """The dump of the blamed rank, or of one that waited for it: a record, told in words."""
    pairs = list(zip(evidence.dumps, evidence.dump_sources, strict=True))
    own = [pair for pair in pairs if pair[0].rank in lead.ranks] or pairs
    for dump, source in own[:2]:
        last = dump.entries[-1] if dump.entries else None
        text = f"last record: {last.name} seq {last.seq} {last.state}" if last is not None else "no records"
        yield Evidence(
            file=evidence.sources[source].path, line=1, text=text, rank=dump.rank,
            why=f"the flight recorder of {'this' if dump.rank in lead.ranks else 'a waiting'} rank",
        )  # fmt: skip


def _last_line(rank: int, evidence: JobEvidence, stories: Mapping[int, Story]) -> list[Evidence]:
    story = stories[rank]
    if story.last_place is None:
        return []
    source, line = story.last_place
    return [
        Evidence(
            file=evidence.sources[source].path, line=max(1, line), text=story.last_text or "(blank)",
            why="the last line that this rank wrote", rank=rank, host=story.host, time=story.last_ns,
        )
    ]  # fmt: skip


def _who(lead: Lead) -> str:
    if not lead.ranks:
        return "a rank that the logs do not name"
    return f"rank {lead.ranks[0]}" if len(lead.ranks) == 1 else "ranks " + ranges(lead.ranks)


def ranges(numbers: Iterable[int]) -> str:
    """`0-2,5` for 0, 1, 2, 5."""
    parts: list[list[int]] = []
    for value in sorted(set(numbers)):
        if parts and value == parts[-1][1] + 1:
            parts[-1][1] = value
        else:
            parts.append([value, value])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def _reasons(decision: Decision, stories: Mapping[int, Story], exits: Sequence[Exit]) -> Iterable[str]:
    yield from decision.reasons
    for lead in decision.leads[:3]:
        yield from lead.reasons
        if lead.attributed:
            yield f"the fault is {_who(lead)}'s: {lead.attributed}"
        alone = lead.tier in {Tier.FAULT, Tier.CRASH} and lead.kind != "collective_mismatch"
        if alone and lead.ranks and len(decision.leads) == 1:
            yield f"{_told_by(lead)}, which needs no other rank to explain it"
        if lead.exit is not None and lead.exit.ending is not Ending.ERROR:
            yield f"the launcher reports {lead.exit.told} for {_who(lead)}"
    yield from _launchers_word(decision, exits)
    blamed = set(decision.ranks)
    victims = [rank for rank, story in stories.items() if rank not in blamed and story.symptoms and not story.roots]
    if victims and decision.leads:
        plural = "s" if len(victims) > 1 else ""
        yield f"the errors of rank{plural} {ranges(victims)} only report waiting for others or losing them"


def _told_by(lead: Lead) -> str:
    """Who tells of a rank's fault: the rank, its node's kernel or its cluster."""
    if lead.signal is not None and lead.signal.signature.startswith("k8s."):
        return f"Kubernetes reports {_who(lead)}'s fault"
    if lead.signal is None or not lead.signal.signature.startswith(("kernel.", "nvidia.")):
        return f"{_who(lead)} reports a fault of its own"
    pid = lead.signal.fields.get("pid")
    if lead.kind == "host_oom" and pid:
        return f"the kernel killed process {pid}, {_who(lead)}'s, for its memory"
    return f"the kernel reports {_who(lead)}'s fault"


def _launchers_word(decision: Decision, exits: Sequence[Exit]) -> Iterable[str]:
    """Whether torchrun's own "Root Cause" agrees: each agent names one, by the exit that it saw first."""
    named = sorted(
        {item.rank for item in exits if item.first and item.report.signature == "te.box" and item.rank is not None}
    )
    blamed = set(decision.ranks)
    if not named or not blamed:
        return
    if len(named) == 1 and set(named) <= blamed:
        yield f"torchrun's root cause (first observed failure) agrees: rank {named[0]}"
    others = [rank for rank in named if rank not in blamed]
    if others:
        yield (
            f"torchrun's root cause names rank{'s' if len(others) > 1 else ''} {ranges(others)}: each agent reports the"
            " first exit that it saw on its own node, which may be a victim's"
        )


def _candidates(decision: Decision) -> Iterable[Candidate]:
    for lead, why in decision.lost[:16]:
        for rank in lead.ranks[:4] or (None,):
            yield Candidate(rank=rank, kind=lead.kind, why_not=why)
