"""The app on a real terminal: each byte that it writes."""

import base64
import signal

import pytest

pytest.importorskip("textual", reason="needs the extra `tui`")
pytest.importorskip("pyte", reason="needs pyte, a terminal in memory")

from tui_terminal import Terminal


@pytest.fixture
def terminal():
    opened = []

    def open_one(*args, **environ):
        opened.append(Terminal(*args, **environ))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def walk(terminal):
    """Through all screens, and out."""
    terminal.press("", "? help")
    terminal.press("e", "X failed rank 3")
    terminal.press("t", "a sign is")
    terminal.press("t", "steps 1,200 to")
    terminal.press("r", "LAST LINE")
    terminal.press("\r", "of rank 3")
    terminal.press("\r", "level ")
    terminal.press("f", "of all ranks")
    terminal.press("/", "text to look for")
    terminal.press("rank\r", "| filter: rank")
    terminal.press("p", "FAILED: job")
    terminal.press("?", "PgUp PgDn")
    return terminal.end("q")


def test_hostile_text_adds_no_control_sequence_to_those_of_harmless_text(terminal):
    innocent, hostile = terminal("innocent"), terminal("hostile")
    assert walk(innocent) == 0
    assert walk(hostile) == 0
    assert hostile.controls() - innocent.controls() == set()


def test_copy_writes_one_sequence_that_holds_the_place(terminal):
    shown = terminal("innocent")
    shown.press("", "? help")
    shown.press("f", "logs/rank0.log:2")
    shown.press("y", "Copied")
    assert shown.end("q") == 0
    assert base64.b64encode(b"logs/rank0.log:2") in shown.output
    assert shown.output.count(b"\x1b]52;c;") == 1


def test_a_bug_ends_with_one_masked_line_and_no_local_variables(terminal):
    shown = terminal("broken")
    assert shown.end() == 1
    _, _, last = shown.output.decode().rpartition("error: ")
    assert last.startswith("this is a bug: RuntimeError: ␛]52;c;eA==␇ no picture for [hf-token:")
    assert "\x1b" not in last
    assert b"hf_Abc" not in shown.output
    assert b"token =" not in shown.output


def test_sigterm_gives_the_terminal_back_first(terminal):
    shown = terminal("healthy")
    shown.press("", "? help")
    assert shown.end(signal=signal.SIGTERM) == 143
    assert b"\x1b[?1049l" in shown.output
    assert b"Traceback" not in shown.output


def test_no_color_leaves_signs_and_takes_every_colour(terminal):
    shown = terminal("healthy", NO_COLOR="1")
    shown.press("", "oooooooo")
    shown.press("r", "o ok")
    assert shown.end("q") == 0
    assert b"\x1b[7;39;49m" in shown.output
    assert b"38;" not in shown.output
    assert b"48;" not in shown.output
