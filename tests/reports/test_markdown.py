"""Markdown for tickets: sound, and nothing of a log becomes markup."""

import re
from itertools import pairwise

import cmarkgfm
import pytest
from cmarkgfm.cmark import Options
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from report_cases import COMPLETED, hostile, rendered, sample, without_root

from aggregator import safe, verdict
from aggregator.case import Case
from aggregator.reports.markup import code, fenced, prose

PARSER = MarkdownIt("gfm-like", {"html": True})
"""With links made of bare addresses, tables, strike-through and raw HTML, as GitHub has them."""
OURS = {"inline", "paragraph", "heading", "bullet_list", "list_item", "strong", "fence", "code_inline", "text",
        "softbreak"}  # fmt: skip
PAYLOADS = (
    "@octocat please look",
    "see #12, GH-12, owner/name#12, !12",
    "https://evil.example/x www.evil.example someone@evil.example",
    "[click](javascript:alert(1)) ![x](http://evil.example/pixel.png) <https://evil.example>",
    "<script>alert(1)</script><img src=x onerror=alert(1)><!-- -->",
    "```\n# Heading\n@octocat\n```",
    "~~~\n# Heading",
    "``` `` ` a`b``c```d",
    "\\`@octocat\\`",
    "# Heading",
    "- item\n* item\n1. item\n---\n===",
    "| a | b |\n|---|---|",
    "**bold** _it_ ~~gone~~ :tada: $x$ $`x`$ &lt; &#64;octocat",
    "[x]: https://evil.example\n[x]",
    "    indented\n\t> quoted",
    "1. one",
    " ` ",
    "see www. or WWW., xmpp: mailto:",
)


def tokens(markdown):
    for token in PARSER.parse(markdown):
        yield token
        yield from token.children or ()


def names(markdown):
    return {re.sub(r"_(open|close)$", "", token.type) for token in tokens(markdown)}


def in_the_open(markdown):
    """The text that a renderer's second pass (mentions, references, emoji) looks at."""
    return "\n".join(token.content for token in tokens(markdown) if token.type == "text")


@pytest.mark.parametrize("run", ["eval-oom-no-grad", "two-node-segfault", "completed-noisy-shutdown"])
def test_the_report_of_a_sample_run_is_the_golden_one(run, golden):
    golden(f"{run}.md", without_root(rendered(sample(run), "markdown")))


def tags_by_github(markdown):
    """The elements that GitHub's own renderer makes outside of code."""
    html = cmarkgfm.github_flavored_markdown_to_html(markdown, Options.CMARK_OPT_UNSAFE)
    return set(re.findall(r"<(\w+)", re.sub(r"(?s)<code.*?</code>", "", html)))


def titles(markdown):
    found = PARSER.parse(markdown)
    return [after.content for token, after in pairwise(found) if token.type == "heading_open"]


def test_the_report_has_its_parts_in_order():
    text = rendered(sample("eval-oom-no-grad"), "markdown")
    found = titles(text)
    assert found[0].startswith("FAILED: 8 ranks")
    assert found[1:4] == ["Evidence", "Why we think so", "Only a consequence"]
    assert found[4].startswith("Diagnosis: Evaluation loop OOM")
    assert "ranks 0-2, 4-7: killed" in text


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("status", verdict.Status)
def test_nothing_of_a_log_becomes_markup(payload, status):
    markdown = rendered(hostile(payload, status=status), "markdown")
    assert names(markdown) <= OURS
    assert tags_by_github(markdown) <= {"h2", "h3", "p", "ul", "li", "strong", "pre"}
    told = in_the_open(markdown)
    assert not re.search(r"[@#<>\[\]&$~|`*_\\]|://|www\.|:[a-z_]+:", told), told
    fences = [token for token in tokens(markdown) if token.type == "fence"]
    assert len(fences) == 3  # two pieces of evidence, the fix as code
    assert len(titles(markdown)) == len(titles(rendered(hostile("x", status=status), "markdown")))


@given(st.text(max_size=60))
@example("`")
@example("a` `b")
@example("1) x")
@example("\ufeff@x")
@example("www. x")
def test_any_text_stays_text_in_a_sentence(text):
    shown = safe.show(text)
    markdown = f"- {prose(shown)} end"
    assert names(markdown) <= OURS - {"fence", "heading"}
    assert tags_by_github(markdown) <= {"ul", "li"}
    assert [token.type for token in PARSER.parse(markdown)].count("list_item_open") == 1
    content = "".join(token.content for token in tokens(markdown) if token.type in {"text", "code_inline"})
    assert re.sub(r"[\s`]", "", content) == re.sub(r"[\s`]", "", f"{shown}end")


@given(st.text(alphabet="` a\\<", max_size=20))
def test_a_code_span_holds_its_text_whole(text):
    spans = [token for token in tokens(f"x {code(text)} y") if token.type == "code_inline"]
    assert [span.content.strip() for span in spans] == ([text.strip()] if text else [])


@given(st.lists(st.text(alphabet="`~# a>-", max_size=12), min_size=1, max_size=5))
def test_a_fence_holds_its_lines_and_nothing_follows_from_them(lines):
    found = PARSER.parse("\n".join([*fenced(lines), "", "after"]))
    assert [token.type for token in found] == ["fence", "paragraph_open", "inline", "paragraph_close"]
    assert found[0].content == "\n".join(lines) + "\n"


def test_what_stands_between_backticks_is_one_piece_of_code():
    assert prose("run (`gdb -p 7`), or `py-spy`: see") == "run (`gdb -p 7`), or `py-spy`: see"


def test_a_long_traceback_is_cut_at_its_beginning():
    text = "\n".join(f"line {number}" for number in range(1000))
    fence = next(token for token in tokens(rendered(hostile(text), "markdown")) if token.type == "fence")
    assert fence.content.startswith("…\n")
    assert len(fence.content.splitlines()) == 21


def test_a_job_in_which_nothing_failed_says_so():
    assert "**No rank failed.**" in rendered(Case(COMPLETED), "markdown")
