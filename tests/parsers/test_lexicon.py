"""Which messages a line holds, and what whole files are scanned for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.lexicon import Lexicon, default_lexicon
from parsers.lineformats import Format, Message, load_formats
from parsers.multiline import BLOCK_LITERALS
from parsers.records import Role
from parsers.stacks import TRACEBACK_HEAD


def message(ident, pattern, *keywords, role=Role.CONTEXT, **more):
    options = {"kind": None, "layer": None, "phase": None, "unless": (), "ends_only": False} | more
    return Message(
        id=ident, role=role, pattern=pattern, keywords=keywords, samples=(), no_match=(), origin=ident, **options
    )


def lexicon(*messages):
    return Lexicon([Format("test", "test", "https://example.org", (), messages)])


def ids(hits):
    return [hit[0].id for hit in hits]


def test_a_line_holds_what_its_pattern_finds_with_the_named_groups_that_took_part():
    found = lexicon(message("a", r"disk (?P<name>\w+)(?: on (?P<host>\w+))? full", "disk")).match("disk sda full")
    assert [(hit.id, fields) for hit, fields in found] == [("a", {"name": "sda"})]


def test_a_keyword_without_its_pattern_and_a_pattern_with_its_exception_are_no_message():
    subject = lexicon(message("a", "disk full", "disk", unless=("was disk full",)))
    assert subject.match("disk fine") == []
    assert subject.match("it was disk full") == []


def test_the_highest_priority_comes_first_and_equals_keep_the_order_of_the_formats():
    subject = lexicon(
        message("low", "x", "x", priority=-1), message("first", "x", "x"), message("second", "x", "x"),
        message("high", "x", "x", priority=5),
    )  # fmt: skip
    assert ids(subject.match("x")) == ["high", "first", "second", "low"]


def test_a_line_gives_at_most_one_mark_of_progress():
    subject = lexicon(
        message("step", r"step (?P<step>\d+)", "step", role=Role.PROGRESS),
        message("other", r"step", "step"),
        message("epoch", r"epoch (?P<epoch>\d+)", "epoch", role=Role.PROGRESS),
    )
    assert sorted(ids(subject.match("epoch 3 step 4"))) == ["other", "step"]
    assert ids(subject.match("epoch 3")) == ["epoch"]


def test_the_mark_that_a_stream_printed_last_is_tried_first():
    step = message("step", r"step (?P<step>\d+)", "step", role=Role.PROGRESS)
    epoch = message("epoch", r"epoch (?P<epoch>\d+)", "epoch", role=Role.PROGRESS)
    subject = lexicon(step, epoch)
    assert ids(subject.match("epoch 3 step 4", epoch)) == ["epoch"]
    assert ids(subject.match("step 4", epoch)) == ["step"]


def test_each_shipped_mark_of_progress_counts_once():
    subject = default_lexicon()
    marks = [
        sample.line
        for fmt in load_formats()
        for item in fmt.messages
        if item.role is Role.PROGRESS
        for sample in item.samples
    ]
    assert marks
    for line in marks:
        assert sum(hit.role is Role.PROGRESS for hit, _ in subject.match(line)) == 1, line


def test_whole_files_are_scanned_for_every_keyword_but_those_of_ordinary_lines():
    literals = default_lexicon().literals
    assert literals == sorted(set(literals))
    for item in default_lexicon().messages:
        assert item.ends_only or set(item.keywords) <= set(literals), item.id
    assert set(BLOCK_LITERALS) <= set(literals)
    rare = lexicon(message("a", "x", "always"), message("b", "x", "never", "always too", ends_only=True)).literals
    assert rare == sorted({"always", *BLOCK_LITERALS})


def test_no_literal_holds_a_line_break_or_is_empty():
    assert all(literal.strip() and "\n" not in literal for literal in default_lexicon().literals)


@pytest.mark.parametrize(("line", "may"), [
    (TRACEBACK_HEAD, True),
    ("Fatal Python error: Segmentation fault", True),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", True),
    ("slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2025-10-03T18:40:00 DUE TO TIME LIMIT ***", True),
    ("epoch 3 step 120 loss 2.31", False),
    ("", False),
])  # fmt: skip
def test_only_faults_ends_and_acts_from_outside_are_worth_their_context(line, may):
    assert default_lexicon().may_be_fault(line) is may


@pytest.mark.parametrize("role", Role)
def test_what_may_be_a_fault_depends_on_the_role(role):
    grave = {Role.ROOT, Role.EITHER, Role.SYMPTOM, Role.EXIT, Role.EXTERNAL}
    assert lexicon(message("a", "x", "word", role=role)).may_be_fault("a word") is (role in grave)


def test_lines_are_of_one_kind_if_they_hold_the_same_scanned_literals():
    subject = lexicon(message("a", "x", "alpha"), message("b", "x", "beta"), message("c", "x", "step", ends_only=True))
    assert subject.scanned("alpha 1") == subject.scanned("2 alpha step 3")
    assert len({subject.scanned(text) for text in ("alpha", "beta", "alpha beta", "", TRACEBACK_HEAD)}) == 5
    assert subject.begins_block(subject.scanned("alpha " + TRACEBACK_HEAD))
    assert not subject.begins_block(subject.scanned("alpha"))


@given(st.text(max_size=300))
def test_any_text_can_be_matched(text):
    subject = default_lexicon()
    hits = subject.match(text)
    assert {hit.id for hit, _ in hits} <= {item.id for item in subject.candidates(text)}


def test_every_shipped_sample_is_shown_to_its_message():
    subject = default_lexicon()
    for fmt in load_formats():
        for item in fmt.messages:
            for sample in item.samples:
                assert item.id in {other.id for other in subject.candidates(sample.line)}, sample.line


NEW = "HIP out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 9.15 GiB of which 1.20 GiB is free."
OLD = "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 31.75 GiB total capacity; 28.10 GiB already allocated; "
OLD_END = "1.20 GiB free; 29.00 GiB reserved in total by PyTorch) If reserved memory is"
REPORTS = [f"torch.OutOfMemoryError: {NEW}", f"torch.cuda.OutOfMemoryError: {OLD}{OLD_END}"]


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_of_memory_that_ran_out_is_one_wherever_it_is_cut(report):
    for length in range(report.index(":"), len(report) + 1):
        hits = default_lexicon().match(report[:length])
        assert [message.kind for message, _ in hits] == ["cuda_oom"], report[:length]
