"""Reports: the text for people, the object for programs."""

import io
import json
import re
from dataclasses import replace

import pytest

from aggregator import verdict as v
from aggregator.case import Case
from aggregator.reports import ReportOptions, reporter, reporter_names, words
from parsers.lineformats import KINDS, PHASES

START = 1_772_625_784_120_000_000
MS = 1_000_000


class Utf8(io.StringIO):
    encoding = "utf-8"


class Latin(io.StringIO):
    encoding = "iso-8859-1"


def rendered(verdict, out=None, name="text", **options):
    out = out or Utf8()
    reporter(name, ReportOptions(**options)).render(Case(verdict), out)
    return out.getvalue()


def timeout(rank, seconds=600, because="its all-reduce waited for rank 3 until the watchdog gave up"):
    return v.Collateral(rank=rank, kind="collective_timeout", message="Watchdog caught collective operation timeout",
                        because=because, time=START + seconds * 10**9)  # fmt: skip


OOM = v.Failure(
    status=v.Status.IDENTIFIED,
    confidence=0.97,
    kind="cuda_oom",
    message="CUDA out of memory. Tried to allocate 2.00 GiB.",
    ranks=(3,),
    hosts=("node-b",),
    gpu="1",
    phase="evaluation",
    layer="software",
    time=START,
    time_uncertainty_s=0.04,
    time_resolution_ns=MS,
    step=1200,
    exception="torch.OutOfMemoryError",
    location="/home/user/project/training/evaluate_model.py:88",
    evidence=(
        v.Evidence(
            file="logs/attempt_0/rank3/stderr.log",
            line=1234,
            text="[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total"
            " capacity of 79.15 GiB of which 512.00 MiB is free.",
            why="the first error of the run, from the allocator of this rank",
            rank=3,
            host="node-b",
            time=START,
            time_resolution_ns=MS,
        ),
        v.Evidence(
            file="logs/launcher.log",
            line=88,
            text='Traceback (most recent call last):\n  File "a.py", line 1, in a\n    f()\n'
            '  File "b.py", line 2, in f\n'
            "    g()\n  File \"c.py\", line 3, in g\n    h()\nRuntimeError: it's over",
            why="the launcher saw this rank exit first",
        ),
    ),
    reasons=(
        "rank 3 printed its error 600 s before any other rank printed one",
        "the watchdogs of the other ranks name a collective that rank 3 never joined",
    ),
    candidates=(v.Candidate(rank=0, kind="collective_timeout", why_not="its timeout began after rank 3 had failed"),
                v.Candidate(rank=1, kind="collective_timeout", why_not="its timeout began after rank 3 had failed")),
    diagnosis=v.Diagnosis(
        entry="eval-oom-no-grad",
        title="Evaluation keeps activations",
        root_cause="The evaluation loop runs without torch.no_grad(), so that every batch keeps its graph.",
        fix="Wrap the loop in torch.no_grad().",
        verify="Peak memory of the evaluation is below that of a training step.",
        score=0.9,
        check_next=("memory_allocated() per evaluation step",),
        references=("https://pytorch.org/docs/stable/generated/torch.no_grad.html",),
    ),
)  # fmt: skip

FAILED = v.Verdict(
    job=v.Job(path="runs/4242", id="4242", world_size=64, ranks_seen=tuple(range(63)), ranks_missing=(63,),
              hosts=("node-a", "node-b"), started=START - 3600 * 10**9, ended=START + 600 * 10**9),
    outcome=v.Outcome.FAILED,
    first_failure=OOM,
    collateral=tuple(timeout(rank) for rank in range(63) if rank != 3),
    attempts=(v.Attempt(index=0, outcome=v.Outcome.FAILED, first_failure=OOM),),
    clocks=(v.Clock(host="node-a", offset_s=0.0, uncertainty_s=0.0, method="reference"),
            v.Clock(host="node-b", offset_s=-2.13, uncertainty_s=0.04, method="collectives")),
    coverage=v.Coverage(files=65, bytes=10**7, lines=123456,
                        files_skipped=(v.SkippedFile(file="core.4242", reason="not text"),)),
    warnings=("rank 7's log ends in the middle of a line",),
)  # fmt: skip

AMBIGUOUS = replace(
    FAILED,
    first_failure=replace(
        OOM, status=v.Status.AMBIGUOUS, confidence=0.5, ranks=(3, 5), hosts=("node-a", "node-b"), gpu=None, time=None,
        diagnosis=None, location=None, exception=None, evidence=OOM.evidence[:1],
        candidates=(v.Candidate(rank=3, kind="cuda_oom", why_not="within 40 ms of rank 5, the clocks differ by more"),
                    v.Candidate(rank=5, kind="cuda_oom", why_not="within 40 ms of rank 3, the clocks differ by more")),
        would_settle=("a run with NCCL_DEBUG=INFO: its stamps tie the clocks of the hosts together",),
    ),
)  # fmt: skip

UNDETERMINED = replace(
    FAILED,
    outcome=v.Outcome.HUNG,
    collateral=(timeout(0), timeout(None)),
    first_failure=v.Failure(
        status=v.Status.UNDETERMINED, confidence=0.3, kind="collective_timeout", message="", phase="communication",
        reasons=("all ranks whose logs are here waited in the same all-reduce",),
        candidates=(v.Candidate(rank=63, kind="unknown", why_not="it left no log"),),
        would_settle=("the log of rank 63", "a flight-recorder dump of all ranks"),
    ),
)  # fmt: skip

COMPLETED = replace(
    FAILED, outcome=v.Outcome.COMPLETED, first_failure=None, collateral=(), warnings=(), clocks=(),
    job=replace(FAILED.job, ranks_missing=()), coverage=v.Coverage(files=64, bytes=1, lines=1),
    attempts=(v.Attempt(index=0, outcome=v.Outcome.FAILED, first_failure=OOM),
              v.Attempt(index=1, outcome=v.Outcome.COMPLETED)),
)  # fmt: skip

CASES = {"failed": FAILED, "ambiguous": AMBIGUOUS, "undetermined": UNDETERMINED, "completed": COMPLETED}


@pytest.mark.parametrize("case", CASES)
def test_the_text_report_is_the_golden_one(case, golden):
    golden(f"{case}.txt", rendered(CASES[case]))


def test_the_json_report_is_the_golden_one(golden):
    golden("failed.json", rendered(FAILED, name="json"))


@pytest.mark.parametrize("case", CASES)
def test_only_a_single_word_can_make_a_line_longer_than_80_columns(case):
    for line in rendered(CASES[case]).splitlines():
        assert len(line) <= 80 or len(line.split()) <= 2, line


def test_a_path_is_never_cut_however_narrow_the_terminal():
    text = rendered(FAILED, width=40)
    assert "logs/attempt_0/rank3/stderr.log:1234" in text
    assert OOM.location in text


@pytest.mark.parametrize("case", CASES)
def test_colour_adds_to_the_words_and_changes_none(case):
    coloured = rendered(CASES[case], color=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == rendered(CASES[case])


def hostile(text, path=None):
    """A verdict that says `text` wherever a job can say anything; files are named `path` if that is given."""
    path = text if path is None else path
    line = replace(OOM.evidence[0], text=text, file=f"f{path}", why=text, host=text)
    failure = replace(OOM, evidence=(line,), message=text, exception=text, location=text, hosts=(text,), gpu=text,
                      reasons=(text,), candidates=(v.Candidate(rank=1, kind="unknown", why_not=text),),
                      would_settle=(text,), diagnosis=replace(OOM.diagnosis, title=text, fix=text))  # fmt: skip
    return replace(
        FAILED, first_failure=failure, warnings=(text,), job=replace(FAILED.job, path=path, id=text),
        collateral=(replace(timeout(1), because=text), replace(timeout(None), because=text, host=text)),
        coverage=replace(FAILED.coverage, files_skipped=(v.SkippedFile(file=path, reason=text),)),
        clocks=(v.Clock(host=text, offset_s=9.0, uncertainty_s=None, method=text),),
        attempts=(v.Attempt(index=0, outcome=v.Outcome.FAILED, first_failure=failure),) * 2,
    )  # fmt: skip


@pytest.mark.parametrize("name", reporter_names())
@pytest.mark.parametrize("color", [False, True])
def test_no_control_character_of_a_log_reaches_the_output(name, color):
    text = rendered(hostile("\x1b]52;c;aGk=\x07\x1b[2J\x9b1m\rFAKE \u202e\u2028\x00\x85"), name=name, color=color)
    own = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\u2028]", own)


@pytest.mark.parametrize("color", [False, True])
def test_markup_in_a_log_stays_text(color):
    text = rendered(hostile("[/red] [bold]x[/bold] [@click=app.quit] :boom:"), color=color)
    assert "[/red] [bold]x[/bold] [@click=app.quit] :boom:" in text


def test_a_newline_in_a_log_cannot_begin_a_line_of_ours():
    assert not [
        line
        for line in rendered(hostile("x\nFirst failure: rank 9")).splitlines()
        if line.startswith("First failure: rank 9")
    ]


@pytest.mark.parametrize("name", reporter_names())
def test_secrets_are_masked_in_every_report_unless_asked_for(name):
    verdict = hostile("PGPASSWORD=tr0ub4dor", path="a/path")  # paths are not masked
    assert "tr0ub4dor" not in rendered(verdict, name=name)
    assert "tr0ub4dor" in rendered(verdict, name=name, redact=False)


@pytest.mark.parametrize("name", reporter_names())
def test_only_ascii_is_written_where_the_output_is_not_utf8(name):
    text = rendered(hostile("naïve 日本 \x1b"), out=Latin(), name=name)
    assert text.isascii()


def test_the_plus_minus_sign_has_an_ascii_form():
    assert "+/-40 ms" in rendered(FAILED, out=Latin())


def test_a_thousand_victims_are_one_line():
    verdict = replace(FAILED, collateral=tuple(timeout(rank) for rank in range(1024) if rank != 13))
    assert "ranks 0-12, 14-1023: collective timeout 600 s later" in " ".join(rendered(verdict).split())


def test_reasons_that_differ_only_in_how_much_later_are_one_line():
    late = tuple(timeout(rank, seconds=rank, because=f"lost rank 3, {rank}.5 s later") for rank in (1, 2, 4))
    text = " ".join(rendered(replace(FAILED, collateral=late)).split())
    assert "ranks 1-2, 4: collective timeout 1 to 4 s later: lost rank 3 " in text


def test_many_unlike_victims_are_counted_not_listed():
    verdict = replace(FAILED, collateral=tuple(timeout(rank, because=f"reason {rank}") for rank in range(50)))
    text = rendered(verdict)
    assert "and 42 more ranks" in text
    assert text.count("reason") < 12


def test_the_json_report_is_one_object_and_nothing_else():
    assert json.loads(rendered(FAILED, name="json"))["first_failure"]["ranks"] == [3]


def test_every_kind_and_phase_has_its_words():
    assert set(words.KINDS) == KINDS
    assert set(words.PHASES) == PHASES - {"unknown"}


@pytest.mark.parametrize("outcome", v.Outcome)
def test_every_outcome_without_a_failure_has_its_sentence(outcome):
    text = rendered(replace(COMPLETED, outcome=outcome))
    assert text.startswith(outcome.upper())
    assert "No rank" in text or "no line tells" in text or "neither" in text


def test_a_period_tells_the_second_date_only_where_it_is_another():
    day = 86400 * 10**9
    assert words.period(0, 10**9) == "1970-01-01 00:00:00Z to 00:00:01Z"
    assert words.period(0, day) == "1970-01-01 00:00:00Z to 1970-01-02 00:00:00Z"
    assert words.period(None, day) == ""


@pytest.mark.parametrize(
    ("ranks", "text"),
    [([], ""), ([3], "3"), ([2, 1, 0, 1], "0-2"), ([0, 2, 3, 7], "0, 2-3, 7")],
)
def test_ranks_are_folded_into_ranges(ranks, text):
    assert words.rank_ranges(ranks) == text


@pytest.mark.parametrize(
    ("times", "start", "text"),
    [
        ([], 0, ""),
        ([5], None, ""),
        ([None], 0, ""),
        ([-(10**9)], 0, ""),
        ([0, 0], 0, "at the same moment"),
        ([600 * 10**9], 0, "600 s later"),
        ([2 * 10**9, None, 600 * 10**9], 0, "2 to 600 s later"),
        ([40 * 10**6, 2 * 10**9], 0, "40 ms to 2 s later"),
        ([-(10**9), 10**9], 0, "0 ms to 1 s later"),
        ([9000 * 10**9], 0, "150 min later"),
        ([90 * 3600 * 10**9], 0, "90 h later"),
    ],
)
def test_how_much_later_is_said_in_fitting_units(times, start, text):
    assert words.lateness(times, start) == text


@pytest.mark.parametrize(
    ("chance", "word"), [(1, "very high"), (0.8, "high"), (0.6, "fair"), (0.4, "low"), (0, "very low")]
)
def test_confidence_is_a_word_and_a_number(chance, word):
    assert words.confidence_words(chance) == f"{word} ({chance:.2f})"
