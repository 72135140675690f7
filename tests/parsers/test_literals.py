"""Finding literals in bytes: all engines show the same lines."""

import random
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.lexicon import default_lexicon
from parsers.literals import AutomatonFinder, FoldedFinder, HyperscanFinder, KeywordIndex, StagedFinder, line_finder

ENGINES = [AutomatonFinder, partial(AutomatonFinder, table=True), StagedFinder, line_finder]
words = st.text("abcX", min_size=1, max_size=4).map(str.encode)


def lines_hit(finder, buffer):
    return {buffer.count(b"\n", 0, position) for position in finder.positions(buffer)}


def lines_holding(literals, buffer):
    return {number for number, line in enumerate(buffer.split(b"\n")) if any(literal in line for literal in literals)}


@given(literals=st.lists(words, min_size=1, max_size=50), buffer=st.text("abcX\n", max_size=200).map(str.encode))
def test_the_lines_shown_are_those_that_hold_a_literal(literals, buffer):
    assert lines_hit(AutomatonFinder(literals), buffer) == lines_holding(literals, buffer)


@given(literals=st.lists(words, min_size=1, max_size=50), buffer=st.text("abcX\n", max_size=200).map(str.encode))
def test_hyperscan_shows_the_same_lines(literals, buffer):
    pytest.importorskip("hyperscan")
    assert lines_hit(HyperscanFinder(literals), buffer) == lines_holding(literals, buffer)


@given(literals=st.lists(words, min_size=1, max_size=50), buffer=st.text("abcABCX\n", max_size=200).map(str.encode))
def test_whatever_the_case_the_lines_shown_are_those_that_hold_a_literal(literals, buffer):
    holding = lines_holding([literal.lower() for literal in literals], buffer.lower())
    assert lines_hit(FoldedFinder(literals), buffer) == holding
    assert lines_hit(line_finder(literals, caseless=True), buffer) == holding


def test_many_literals_are_all_found():
    literals = [f"literal number {number:04}".encode() for number in range(500)]
    shuffled = random.Random(3).sample(literals, 500)
    buffer = b"\n".join(shuffled)
    for finder in ENGINES:
        assert len(set(finder(literals).positions(buffer))) == 500
        assert lines_hit(finder(literals), buffer) == set(range(500))


@given(literals=st.lists(words, min_size=1, max_size=50), buffer=st.text("abcX\n", max_size=200).map(str.encode))
def test_engines_give_the_same_positions(literals, buffer):
    first, *others = [set(engine(literals).positions(buffer)) for engine in ENGINES]
    assert all(positions == first for positions in others)


@pytest.mark.parametrize("size", [1, 100_000_000])
def test_how_much_there_is_to_search_changes_nothing_of_what_is_found(size):
    literals = [literal.encode() for literal in default_lexicon().literals]
    buffer = b"\n".join(literals)
    finder = StagedFinder(literals)
    before = finder.positions(buffer)
    finder.expect(size)
    assert finder.positions(buffer) == before == sorted(before)
    assert lines_hit(finder, buffer) == set(range(len(literals)))


def test_positions_ascend_and_lie_inside_the_literal():
    for engine in ENGINES:
        finder = engine([b"needle", b"dl"])
        positions = finder.positions(b"hay needle hay needle")
        assert positions == sorted(positions)
        assert {4 <= position < 10 or 15 <= position < 21 for position in positions} == {True}


@pytest.mark.parametrize("engine", ENGINES)
def test_characters_with_a_meaning_in_patterns_are_meant_literally(engine):
    literals = [b"a.c", b"(x)", b"[0]", b"$^", b"\\d", b"\xff\x00"]
    assert engine(literals).positions(b"abc x 0 7") == []
    for literal in literals:
        assert engine(literals).positions(b"--" + literal + b"--")


@pytest.mark.parametrize("engine", ENGINES)
def test_an_empty_buffer_holds_nothing_and_case_matters(engine):
    assert engine([b"Error"]).positions(b"") == []
    assert engine([b"Error"]).positions(b"error ERROR") == []


@given(
    keywords=st.lists(st.text("abé", min_size=1, max_size=3), min_size=1, unique=True), text=st.text("abé", max_size=30)
)
def test_a_keyword_index_tells_all_keywords_that_a_text_holds(keywords, text):
    assert KeywordIndex(keywords).found(text) == {n for n, keyword in enumerate(keywords) if keyword in text}
