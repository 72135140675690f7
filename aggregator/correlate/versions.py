"""Whose version of NCCL differs from that of the others: each of them reports it, and only the odd one out is wrong."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from aggregator.correlate.confidence import Basis
from aggregator.correlate.decide import Decision
from aggregator.correlate.evidence import number
from aggregator.correlate.leads import Lead
from aggregator.verdict import Status
from parsers.records import Signal

_MISMATCH = "nccl.version_mismatch"
_OWN_VERSION = re.compile(r"\bNCCL version (?P<version>\d+\.\d+\.\d+)")


def drop_common_versions(leads: list[Lead], signals: Sequence[Signal]) -> list[tuple[Lead, str]]:
    """Takes out the leads of ranks that have the version of most ranks, each with the reason."""
    versions = _versions(signals) if any(map(_compares, leads)) else {}
    common = Counter(versions.values()).most_common(1)
    if not common or common[0][1] * 2 <= len(versions):
        return []
    version = common[0][0]
    of_most, odd = list[Lead](), list[Lead]()
    for lead in [lead for lead in leads if lead.ranks and _compares(lead)]:
        (of_most if {versions.get(rank) for rank in lead.ranks} == {version} else odd).append(lead)
    if not odd:
        return []
    for lead in odd:
        lead.attributed = "its version of NCCL is not that of most ranks"
    dropped = set(map(id, of_most))
    leads[:] = [lead for lead in leads if id(lead) not in dropped]
    return [(lead, "its version of NCCL is that of most ranks") for lead in of_most]


def _versions(signals: Sequence[Signal]) -> dict[int, str]:
    """The version of each rank: as a comparison tells it, or the rank's own error."""
    versions: dict[int, str] = {}
    for signal in signals:
        if signal.signature == _MISMATCH:
            for end in ("a", "b"):
                rank, code = (number(signal.fields.get(f"{name}_{end}")) for name in ("rank", "version"))
                if rank is not None and code is not None:
                    versions[rank] = f"{code // 10000}.{code // 100 % 100}.{code % 100}"  # NCCL_VERSION, since 2.9
        elif signal.rank is not None and (told := _OWN_VERSION.search(signal.text)) is not None:
            versions.setdefault(signal.rank, told["version"])
    return versions


def _compares(lead: Lead) -> bool:
    return any(signal is not None and signal.signature == _MISMATCH for signal in (lead.signal, *lead.support))


def open_versions(decision: Decision) -> None:
    """Of two versions that differ, with no third to compare, either may be the wrong one."""
    odd = [lead for lead in decision.leads if _compares(lead)]
    if decision.status is Status.IDENTIFIED and odd and not any(lead.attributed for lead in odd):
        decision.status, decision.basis = Status.AMBIGUOUS, Basis.PERHAPS_ECHO
        decision.reasons.append("two versions of NCCL met: either may be the one that is not meant to be there")
        decision.would_settle.append("NCCL_DEBUG=VERSION, for the version of every rank")
