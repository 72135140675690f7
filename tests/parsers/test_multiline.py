"""Blocks of lines: which lines belong together, whoever writes in between."""

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.multiline import BLOCK_LITERALS, BlockAssembler, BlockKind, Place
from parsers.prefixes import Origin
from parsers.records import Stamp


def text(block):
    return textwrap.dedent(block).strip("\n").split("\n")


def assembled(lines, mark=lambda _key: None):
    """Blocks in the order in which they end; a line is a text, or (key, text), or (key, Origin)."""
    assembler = BlockAssembler(mark)
    blocks = []
    for number, line in enumerate(lines, 1):
        key, body = line if isinstance(line, tuple) else (None, line)
        origin = body if isinstance(body, Origin) else Origin(body)
        blocks += assembler.feed(key, origin, Place(number, number * 100))[1]
    return blocks + assembler.finish()


def bodies(lines, **options):
    return ["\n".join(block.lines).strip() for block in assembled(lines, **options)]


PLAIN = text("""
    Traceback (most recent call last):
      File "t.py", line 9, in <module>
        f()
    KeyError: 'k'
""")
OTHER = text("""
    Traceback (most recent call last):
      File "u.py", line 3, in g
        x = 1 / 0
            ~~^~~
    ZeroDivisionError: division by zero
""")


def joined(lines):
    return "\n".join(lines)


def test_a_traceback_is_its_lines_and_nothing_around_it():
    (block,) = assembled(["before", *PLAIN, "after", "more"])
    assert block.kind is BlockKind.TRACEBACK
    assert block.lines == PLAIN
    assert [place.line for place in block.places] == [2, 3, 4, 5]
    assert (block.place, block.lead) == (Place(2, 200), "before")


def test_two_tracebacks_one_after_the_other_are_two_blocks():
    assert bodies([*PLAIN, *OTHER]) == [joined(PLAIN), joined(OTHER)]


def test_two_tracebacks_apart_by_blank_lines_are_two_blocks():
    assert bodies([*PLAIN, "", "", *OTHER]) == [joined(PLAIN), joined(OTHER)]


@pytest.mark.parametrize("link", [
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
])  # fmt: skip
def test_a_chain_is_one_block(link):
    (block,) = assembled([*PLAIN, "", link, "", *OTHER, "bye"])
    assert [line for line in block.lines if line] == [*PLAIN, link, *OTHER]


def test_a_worker_s_traceback_inside_a_message_is_part_of_the_block():
    lines = [
        *PLAIN[:-1], "RuntimeError: Caught KeyError in DataLoader worker process 2.",
        "Original Traceback (most recent call last):", *PLAIN[1:],
    ]  # fmt: skip
    assert bodies([*lines, "", "bye"]) == [joined(lines)]


def test_what_a_spawned_process_died_of_is_part_of_the_block():
    (block,) = assembled([
        *PLAIN[:-1], "torch.multiprocessing.spawn.ProcessRaisedException: ", "",
        "-- Process 1 terminated with the following error:", *OTHER, "", "bye",
    ])  # fmt: skip
    assert block.lines[-1] == OTHER[-1]


def test_the_frames_that_ray_prints_below_the_wrapper_are_part_of_the_block():
    (block,) = assembled([
        *PLAIN[:-1], "ray.exceptions.RayTaskError(ValueError): ray::Runner.run() (pid=331, ip=10.1.9.20)",
        '  File "r.py", line 7, in run', "    step()", "ValueError: bad step", "bye",
    ])  # fmt: skip
    assert block.lines[-1] == "ValueError: bad step"


LINK = "During handling of the above exception, another exception occurred:"


@given(st.lists(st.integers(0, 3), min_size=30, max_size=60))
def test_tracebacks_of_tagged_writers_are_not_mixed_however_they_are_interleaved(turns):
    queues = {
        key: [*PLAIN[:-1], f"KeyError: {key}", "", LINK, "", *OTHER[:-1], f"ValueError: {key}", "bye"]
        for key in range(4)
    }
    whole = {key: [line for line in queue if line not in {"", "bye"}] for key, queue in queues.items()}
    lines = [(key, queues[key].pop(0)) for key in turns if queues[key]]
    lines += [(key, line) for key, queue in queues.items() for line in queue]
    found = {block.key: [line for line in block.lines if line] for block in assembled(lines)}
    assert found == whole


def test_the_tracebacks_of_sixty_writers_that_take_turns_are_whole():
    lines = [(key, line) for line in [*PLAIN, "", LINK, "", *OTHER, "bye"] for key in range(60)]
    blocks = assembled(lines)
    assert len(blocks) == 60
    assert {len([line for line in block.lines if line]) for block in blocks} == {len([*PLAIN, LINK, *OTHER])}


def test_a_block_stays_open_while_others_write_and_is_given_up_in_the_end():
    noise = [("b", "noise")] * 300
    (block,) = assembled([*(("a", line) for line in PLAIN[:-1]), *noise, ("a", PLAIN[-1])])
    assert block.lines == PLAIN
    assembler = BlockAssembler()
    for line in PLAIN[:-1]:
        assembler.feed("a", Origin(line), Place(1, 0))
    ended = [block for _ in range(1_000) for block in assembler.feed("b", Origin("noise"), Place(2, 0))[1]]
    assert [block.lines for block in ended] == [PLAIN[:-1]]
    assert not assembler.busy


def test_a_traceback_without_an_end_does_not_grow_for_ever():
    lines = [*PLAIN[:1], *('  File "t.py", line 1, in f' for _ in range(20_000))]
    blocks = assembled(lines)
    assert max(len(block.lines) for block in blocks) < 5_000


def test_heads_that_follow_one_another_do_not_stay_open_together():
    assembler = BlockAssembler()
    ended = [block for line in range(300) for block in assembler.feed(None, Origin(PLAIN[0]), Place(line, line))[1]]
    assert [block.place.line for block in ended] == list(range(300 - 32))  # the oldest first, one for each new one
    assert [block.place.line for block in assembler.finish()] == list(range(300 - 32, 300))


def test_no_block_is_given_back_twice():
    for length in range(2_990, 3_010):
        frames = ['  File "t.py", line 1, in f'] * length
        blocks = assembled([PLAIN[0], *frames, PLAIN[-1], "bye", *OTHER, "bye"])
        assert len({id(block) for block in blocks}) == len(blocks)


def test_a_stamped_line_of_a_logger_is_not_taken_for_the_exception_of_an_unstamped_traceback():
    record = Origin("Saved: ok", stamp=Stamp(1), level="INFO")
    (block,) = assembled([(None, line) for line in PLAIN[:-1]] + [(None, record), (None, PLAIN[-1])])
    assert block.lines == PLAIN


def test_a_traceback_of_which_each_line_has_a_stamp_is_whole():
    lines = [(None, Origin(line, stamp=Stamp(number), level="ERROR")) for number, line in enumerate(PLAIN)]
    (block,) = assembled(lines)
    assert block.lines == PLAIN


def test_text_before_the_head_on_its_own_line_is_the_lead():
    (block,) = assembled(["x", "ERROR: job failed: " + PLAIN[0], *PLAIN[1:]])
    assert (block.lead, block.lines) == ("ERROR: job failed:", PLAIN)


def test_the_lead_is_the_last_line_with_text_of_the_same_writer():
    (block,) = assembled(
        [("a", "Exception in thread Thread-7:"), ("a", ""), ("b", "x"), *(("a", line) for line in PLAIN)]
    )
    assert block.lead == "Exception in thread Thread-7:"


DUMP = text("""
    Fatal Python error: Segmentation fault

    Current thread 0x00007ff5691feb80 (most recent call first):
      File "/w/data.py", line 48 in __getitem__
      <truncated rest of calls>

    Thread 0x00007ff5691feb81 (most recent call first):
      <no Python frame>

    Extension modules: numpy, torch._C (total: 2)
""")


def test_a_fault_handler_s_dump_ends_with_its_list_of_modules():
    (block,) = assembled([*DUMP, "next"])
    assert (block.kind, block.lines) == (BlockKind.FAULT, DUMP)


def test_a_dump_without_that_list_ends_when_other_text_goes_on():
    (block,) = assembled([*DUMP[:-1], *["ordinary"] * 10])
    assert block.lines == DUMP[:-1]


def test_the_last_line_before_a_crash_may_lack_its_line_feed():
    (block,) = assembled(["step 12Fatal Python error: Aborted", "step 12 Fatal Python error: Aborted", *DUMP[1:]])
    assert block.place.line == 2


BOX = text("""
    ============================================================
    train.py FAILED
    ------------------------------------------------------------
    Failures:
      <NO_OTHER_FAILURES>
    ------------------------------------------------------------
    Root Cause (first observed failure):
    [0]:
      time      : 2025-10-03_18:37:01
      traceback : Traceback (most recent call last):
        File "/w/t.py", line 4, in f
      KeyError: 'k'
      
    ============================================================
""")  # noqa: W293 - torch indents the empty line too


def test_a_box_is_one_block_with_the_traceback_inside():
    (block,) = assembled([*BOX, "next"])
    assert block.kind is BlockKind.BOX
    assert "  KeyError: 'k'" in block.lines


def test_two_boxes_are_two_blocks():
    assert len(assembled([*BOX, *BOX])) == 2


def test_a_box_that_is_cut_off_is_kept_as_far_as_it_came():
    (block,) = assembled(BOX[:8])
    assert block.lines[-1] == "[0]:"


def test_a_box_goes_on_behind_a_line_of_another_writer():
    (block,) = assembled([*BOX[:8], "INFO of another", *BOX[8:]])
    assert "  KeyError: 'k'" in block.lines


def test_words_like_failures_in_ordinary_text_open_no_block():
    assert assembled(["Failures: 3 of 100 requests", "Root Cause (first observed failure): none so far"]) == []


def test_a_block_keeps_the_mark_of_the_moment_it_began():
    count = iter(range(100))
    blocks = assembled([*PLAIN, *OTHER], mark=lambda _key: next(count))
    assert [block.mark for block in blocks] == [0, 1]


def test_an_assembler_is_settled_only_when_nothing_is_missing():
    assembler = BlockAssembler()
    states = []
    for line in [*PLAIN, "", "During handling of the above exception, another exception occurred:", "", *PLAIN, "x"]:
        assembler.feed(None, Origin(line), Place(1, 0))
        states.append((assembler.busy, assembler.settled))
    open_, complete, idle = (True, False), (True, True), (False, False)
    assert states == [open_, open_, open_, complete, complete, open_, open_, *[open_] * 3, complete, idle]


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([*PLAIN, *DUMP, *BOX, "", "x", *BLOCK_LITERALS]))))
def test_any_order_of_lines_gives_blocks_that_hold_each_line_once(lines):
    places = [place.line for block in assembled(lines) for place in block.places]
    assert len(places) == len(set(places))


def test_a_traceback_whose_head_was_cut_off_is_one_still():
    assert bodies(PLAIN[1:]) == ["\n".join(PLAIN[1:]).strip()]


def test_indented_code_may_stand_above_the_first_frame_that_was_kept():
    assert bodies(["    x = g()", *PLAIN[1:]]) == ["\n".join(PLAIN[1:]).strip()]


def test_a_frame_in_the_midst_of_a_stream_begins_nothing():
    assert assembled(["text", *PLAIN[1:]]) == []


def test_streams_are_cut_off_each_for_itself():
    lines = [("a", "text"), *[("b", line) for line in PLAIN[1:]], ("a", "text")]
    assert [block.key for block in assembled(lines)] == ["b"]
