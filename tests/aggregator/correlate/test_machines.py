"""Event logs of management controllers: what struck a machine, and the many things in them that struck none."""

from datetime import timedelta

import pytest
from correlate_jobs import START, brief, hello, lines, steps, watchdog

LOST = "Power Supply PSU1 | Power Supply AC lost | Asserted"
BOOT = "System Event | OEM System boot event | Asserted"


def event(seconds, text):
    return f" 1a1 | {(START + timedelta(seconds=seconds)).strftime('%m/%d/%Y | %H:%M:%S')} | {text}"


def job(*events, last=20):
    ranks = {f"n{1 + r // 2}_r{r}.log": hello(r, 4, f"n{1 + r // 2}") + steps(r, 1, 20) for r in range(4)}
    for rank in (0, 1):
        ranks[f"n1_r{rank}.log"] += watchdog(620, rank)
    for rank in (2, 3):
        ranks[f"n2_r{rank}.log"] += steps(rank, 20, last)
    return ranks | {"n2-ipmi-sel.txt": lines(*(event(*told) for told in events))}


@pytest.mark.parametrize(
    "events",
    [
        [(30, LOST), (1200, BOOT)],
        [(30, "Power Unit Pwr Unit Status | Power off/down | Asserted"), (31, "Fan FAN1 | Lower Critical | Asserted")],
        [(30, "Processor CPU1 Status | Thermal Trip | Asserted"), (1200, "OS Boot | C: boot completed | Asserted")],
        [(-9e7, LOST), (30, LOST), (31, LOST.replace("PSU1", "PSU2")), (1200, BOOT)],
    ],
)
def test_a_machine_that_started_anew_after_its_ranks_fell_silent_was_struck(judge, events):
    verdict = judge(job(*events))
    assert brief(verdict) == ("failed", "identified", (2, 3), "node_failure")
    assert verdict.first_failure.evidence[0].file == "n2-ipmi-sel.txt"


@pytest.mark.parametrize(
    ("events", "last"),
    [
        ([(30, LOST), (40, LOST.replace("Asserted", "Deasserted"))], 20),
        ([(30, LOST), (1200, BOOT)], 60),
        ([(-9e7, LOST), (-8e7, BOOT)], 20),
        ([(9e7, LOST), (9e7 + 60, BOOT)], 20),
        ([(30, "Memory #0x02 | Correctable ECC | Asserted"), (1200, BOOT)], 20),
    ],
    ids=["redundant", "ranks wrote on", "before the job", "long after", "corrected"],
)
def test_events_that_ended_nothing_are_no_failure(judge, events, last):
    assert judge(job(*events, last=last)).first_failure.kind != "node_failure"
