"""A number in brackets is a launcher's label only where no program can have written it for a reason of its own."""

import pytest

from parsers.lexicon import default_lexicon
from parsers.numberlabels import looks_numbered
from parsers.prefixes import PrefixStripper
from parsers.timestamps import StampContext

TRACE = ("Traceback (most recent call last):", '  File "/w/t.py", line 9, in f', "KeyError: 1")


def labelled(*texts, ranks=range(4)):
    return [f"[{rank}] {text}" for rank in ranks for text in texts]


@pytest.mark.parametrize(
    "lines",
    [
        labelled(*TRACE),
        labelled(*TRACE, ranks=range(4, 8)),
        labelled("rank 3/8 of nothing", ranks=[3, 3]) + labelled("rank=4 up", ranks=[4, 4]),
        [line for rank in range(4) for line in (f"2031-02-03 04:05:06,1 [rank {rank}] up", *labelled("a", "b", "c",
            ranks=[rank]))],
        [line for step in range(9) for line in labelled(f"global rank: {step % 2}", ranks=[step % 2])],
        [f"({rank}) {text}" for rank in range(4) for text in TRACE],
        [f"[{rank}]: {text}" for rank in range(4) for text in TRACE],
        [f"[{rank}/8] {text}" for rank in range(4) for text in TRACE],
        [f"({rank}) step {step} acc 0.1" for step in range(5) for rank in (2, 0, 1)],
        [f"[{rank}] iter={step} loss 1.2" for step in range(90, 99) for rank in range(2)][:-1],
    ],
)  # fmt: skip
def test_what_only_a_launcher_writes_or_the_processes_confirm_is_a_label(lines):
    assert looks_numbered(lines)


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [f"[{epoch}] step {step} loss 1.2" for epoch in range(5) for step in range(8)],
        [f"[{step}] loss 1.2" for _ in range(5) for step in range(8)],
        [f"[{request}] done" for request in (3, 1, 2, 1, 3, 2) * 9],
        [f"[{epoch}] rank {rank}: loss 1.2" for epoch in range(5) for rank in range(4)],
        [f"({epoch}) step {step} loss 1.2" for step in range(2) for epoch in range(5)],
        [f"({worker}) step {step} saved" for step in range(9) for worker in (step % 2, 1)],
        [f"[{part}/8] step {step} of the download" for part in range(1, 9) for step in range(9)],
        labelled(*TRACE, ranks=[3]),
        labelled(*TRACE, ranks=[1, 400]),
        labelled(*TRACE) + ["text"] * 20,
        [*labelled("saved"), *TRACE] * 4,
    ],
    ids=[
        "nothing",
        "epochs",
        "steps",
        "requests",
        "epochs of ranks",
        "two steps",
        "not all",
        "parts",
        "one",
        "far apart",
        "few",
        "traceback untagged",
    ],
)
def test_counters_are_none(lines):
    assert not looks_numbered(lines)


def fitting(lines):
    return PrefixStripper.fitting(default_lexicon().prefixes, StampContext(None), lines)


@pytest.mark.parametrize("tag", ["rank={} ", "rank {} ", "Rank: {} ", "r{} ", "pw2 r{} ", "rank{} ", "r{}|"])
@pytest.mark.parametrize(
    "stamp", ["", "2031-02-03 04:05:06,789 ", "2031-02-03 04:05:06,789 INFO ", "2031-02-03 04:05:06|INFO|"]
)
def test_a_rank_in_front_of_most_lines_is_the_writers(tag, stamp):
    lines = [f"{stamp}{tag.format(rank)}step {step} loss 1.2" for step in range(3) for rank in (2, 3)]
    told = [fitting(lines).strip(line) for line in lines]
    assert [origin.rank for origin in told] == [2, 3] * 3
    assert {origin.body[:4] for origin in told} == {"step"}
    assert {origin.host for origin in told} == ({"pw2"} if "pw2" in tag else {None})


@pytest.mark.parametrize(
    "lines",
    [
        ["rank 3 did not answer", *["step 5 loss 1.2"] * 3],
        ["rank 3 did not answer", "rank 4 did not answer"],
        ["rank 3 did not answer"] * 5,
        [f"epoch{epoch} rank {rank} loss 1.2" for epoch in range(3) for rank in range(2)],
    ],
    ids=["few", "once each", "one rank", "no host"],
)
def test_a_sentence_about_a_rank_is_nobodys_tag(lines):
    assert {fitting(lines).strip(line).rank for line in lines} == {None}
