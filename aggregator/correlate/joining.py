"""Leads that tell of one failure are joined into one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aggregator.correlate.evidence import NS, JobEvidence, ints
from aggregator.correlate.exits import Ending
from aggregator.correlate.identity import same_host
from aggregator.correlate.leads import FAULT_TIERS, Lead, Tier, most_specific
from aggregator.correlate.stories import Story
from parsers.records import Role, Signal, StampQuality

_WARNING = " NCCL WARN "
_WORDS_IN_FRONT = 3
"""Tags that a line which repeats a warning may have in front of it."""
_OF_THE_GPU = frozenset({"cuda_error", "cuda_illegal_access", "nccl_error", "gpu_xid"})


def join_kernel(leads: list[Lead], homeless: Sequence[Signal], evidence: JobEvidence) -> None:
    """A kernel or scheduler record on a host explains a rank there that ended without a word, or tells its time."""
    _name_hosts(leads, homeless)
    _join_links(leads, homeless)
    for signal in homeless:
        if signal.role is not Role.ROOT or signal.kind not in {"host_oom", "gpu_lost", "gpu_ecc", "gpu_xid"}:
            continue
        host = signal.host or evidence.source(signal).host
        worker = _lost_worker(leads, signal)
        if worker is not None:
            worker.kind, worker.signal, worker.support = "host_oom", signal, [*worker.support, *_told(worker)]
            worker.reasons.append("the kernel killed the worker process that this rank lost")
            leads[:] = [lead for lead in leads if lead.ranks or lead.kind != "host_oom"]
            continue
        killed = [
            lead for lead in leads
            if lead.exit is not None and lead.exit.ending in {Ending.KILLED, Ending.OOM} and len(lead.ranks) == 1
            and lead.signal is None
            and (host is None or not lead.hosts or any(same_host(host, other) for other in lead.hosts))
        ]  # fmt: skip
        oom = [lead for lead in killed if lead.exit is not None and lead.exit.ending is Ending.OOM] or killed
        target = oom[0] if len(oom) == 1 else None
        whole = [lead for lead in leads if not lead.ranks and lead.signal is signal]
        if target is not None and signal.kind == "host_oom":
            target.kind, target.tier, target.signal = "host_oom", Tier.FAULT, signal
            target.reasons.append("the memory limit's record and the kill of this rank belong together")
            if host and not target.hosts:
                target.hosts = (host,)
            for lead in whole:
                leads.remove(lead)


def _name_hosts(leads: Sequence[Lead], homeless: Sequence[Signal]) -> None:
    """PyTorch repeats NCCL's last warning word for word; NCCL's own line of it has its host, but no rank."""
    warned: dict[str, set[str]] = {}
    for signal in homeless:
        _, warning, text = signal.text.partition(_WARNING)
        if warning and signal.host is not None:
            warned.setdefault(text.strip(), set()).add(signal.host)
    for lead in leads:
        if lead.hosts or lead.signal is None or not lead.ranks:
            continue
        words = lead.signal.text.split(" ")
        for skipped in range(_WORDS_IN_FRONT + 1):
            hosts = warned.get(" ".join(words[skipped:]).strip(), set())
            if len(hosts) == 1:
                lead.hosts = tuple(hosts)
                break


def _join_links(leads: Sequence[Lead], homeless: Sequence[Signal]) -> None:
    """The kernel stamps the loss of a link to the second; NCCL's lines of it have no stamp of their own.

    Links also go down when a host starts: the record must lie within the time that the logs of its ranks leave open.
    """
    for record in homeless:
        if not record.signature.startswith("kernel.link.") or record.quality is not StampQuality.OWN:
            continue
        near = [
            lead for lead in leads
            if lead.kind == "ib_error" and record.host and any(same_host(record.host, host) for host in lead.hosts)
        ]  # fmt: skip
        began = [lead.lo for lead in near if lead.lo is not None]
        ended = [lead.hi for lead in near if lead.hi is not None]
        if began and ended and record.ns is not None and min(began) - NS <= record.ns <= max(ended):
            for lead in near:
                lead.support.append(record)


def _lost_worker(leads: Sequence[Lead], killed: Signal) -> Lead | None:
    """The lead of the rank that says that it lost the very process that the kernel killed for its memory."""
    pid = killed.fields.get("pid")
    if pid is None or not pid.isdigit() or killed.kind != "host_oom":
        return None
    for lead in leads:
        if len(lead.ranks) == 1 and lead.signal is not None and lead.signal is not killed:
            told = (lead.signal, *lead.support)
            if any(int(pid) in ints(s.fields.get("worker_pids") or s.fields.get("worker_pid")) for s in told):
                return lead
    return None


def _told(lead: Lead) -> list[Signal]:
    return [lead.signal] if lead.signal is not None else []


def join_hardware(leads: list[Lead], hosts: Sequence[str]) -> None:
    """What the driver proves of a host's GPU explains the one rank there that reports an error of its GPU.

    `hosts` are all that the job is known to have: of one alone is who does not tell its own.
    """
    for proof in [lead for lead in leads if lead.proven and not lead.ranks and lead.hosts]:
        struck = [
            lead for lead in leads
            if lead.tier is Tier.FAULT and len(lead.ranks) == 1 and lead.kind in _OF_THE_GPU
            and any(same_host(proof.hosts[0], host) for host in lead.hosts or (hosts if len(hosts) == 1 else ()))
        ]  # fmt: skip
        if len(struck) != 1:
            continue
        target = struck[0]
        target.support.extend(s for s in (target.signal, *proof.support) if s is not None)
        target.kind, target.signal = proof.kind, proof.signal
        target.reasons.append("the driver's record of a broken GPU and this rank's error on that host belong together")
        leads.remove(proof)


def explain_aborts(leads: Sequence[Lead], homeless: Sequence[Signal], stories: Mapping[int, Story]) -> None:
    """An abort whose reason is printed without a rank, and may be an echo, is no fault of the rank's own making.

    Where the rank itself tells that another's call differs from its own, that is the failure, whichever of them it was.
    """
    for lead in leads:
        told = [stories[rank] for rank in lead.ranks if rank in stories]  # a launcher's report may name any number
        differs = [s for story in told for s in story.eithers if s.kind == "collective_mismatch"]
        if lead.tier is Tier.CRASH and lead.signal is None and lead.kind == "abort" and differs:
            lead.signal, lead.kind = differs[0], "collective_mismatch"
    reasons = [s for s in homeless if s.role in {Role.EITHER, Role.SYMPTOM}]
    if not any(s.kind == "abort" for s in reasons):
        return
    for lead in leads:
        if lead.tier is Tier.CRASH and lead.signal is None and lead.kind == "abort":
            near = [s for s in reasons if s.host is None or not lead.hosts or same_host(s.host, lead.hosts[0])]
            if near:
                telling = [s for s in near if s.kind not in {None, "abort"}]
                lead.tier, lead.signal = Tier.EITHER, most_specific(telling or near)
                lead.kind = lead.signal.kind or "abort"


def merge_leads(leads: list[Lead]) -> list[Lead]:
    """One lead a rank: a fault and a crash report of one rank are one failure."""
    merged: dict[tuple[int, ...], Lead] = {}
    rest = []
    for lead in leads:
        if not lead.ranks:
            rest.append(lead)
            continue
        known = merged.get(lead.ranks)
        if known is None or lead.tier < known.tier:
            merged[lead.ranks] = lead
    named = list(merged.values())
    covered = {lead.kind for lead in named if lead.tier in FAULT_TIERS}
    # Both ends of a link tell of its errors: what the kernel tells of a third GPU is not covered by them.
    return [
        *named,
        *(lead for lead in rest if lead.kind not in covered or (lead.proven and lead.kind == "nvlink_error")),
    ]
