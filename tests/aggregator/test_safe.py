"""Foreign text loses the power to act, and secrets stay inside."""

import re
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator import safe

PATTERNS = safe.secret_patterns()
SAMPLES = [(pattern, line, secret) for pattern in PATTERNS for line, secret in pattern.match]
ORDINARY = [
    "/scratch/u/run_20260304/logs/rank3.stderr:120",
    'File "/opt/conda/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1553, in _wrapped_call_impl',
    "HEAD is now at 0123456789abcdef0123456789abcdef01234567 fix loss",
    "node-a:4321:4399 [3] NCCL INFO comm 0x55d5c8a0 rank 3 nranks 8 cudaDev 3 busId 1b000 commId 0x9a8b7c6d5e4f3a2b",
    "step 1200 | loss 2.3345 | grad_norm 1.02 | lr 3.0e-04 | tokens/s 123456.7 | tokens: 1073741824",
    "tokenizer=AutoTokenizer pad_token=<|endoftext|> eos_token_id=128001",
    "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "WorkNCCL(SeqNum=81, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000)",
    "slurmstepd: error: *** JOB 4242 ON node-b CANCELLED AT 2026-03-04T12:00:00 DUE TO TIME LIMIT ***",
    "KeyError: 'token_type_ids'",
    "TCPStore key: default_pg/0//cpu//0//key_with_long_name_0123456789",
]  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "line", "secret"), SAMPLES, ids=[f"{p.id}-{i}" for i, (p, _, _) in enumerate(SAMPLES)]
)
def test_each_sample_of_a_secret_is_found_whole_and_masked(pattern, line, secret):
    assert any(keyword in line.lower() for keyword in pattern.keywords)
    found = pattern.regex.search(line)
    assert found is not None
    assert found["secret"] == secret
    masked = safe.mask(line)
    assert secret not in masked
    assert re.search(r"\[[a-z-]+:[0-9a-f]{4}\]", masked)


@pytest.mark.parametrize("line", [line for pattern in PATTERNS for line in pattern.no_match] + ORDINARY)
def test_ordinary_lines_are_left_as_they_are(line):
    assert safe.mask(line) == line
    assert safe.show(line) == line


def test_keywords_are_lower_case_because_lines_are_lowered_before_the_search():
    assert all(keyword == keyword.lower() for pattern in PATTERNS for keyword in pattern.keywords)


def test_patterns_stay_in_the_subset_that_re2_shares():
    for pattern in PATTERNS:
        text = pattern.regex.pattern
        assert not re.search(r"\(\?(?:[=!]|<[=!]|>|P=)|\\[1-9]|[+*?}]\+", text), pattern.id
        assert all(int(count) <= 1000 for count in re.findall(r"\{\d*,?(\d+)\}", text)), pattern.id


def test_equal_secrets_get_equal_masks_and_another_key_gives_another_mask():
    line = "redis://:hunter2@a and redis://:hunter2@b and redis://:hunter3@c"
    masks = re.findall(r"\[url-password:[0-9a-f]{4}\]", safe.mask(line, key=b"one"))
    assert masks[0] == masks[1] != masks[2]
    assert safe.mask(line, key=b"one") != safe.mask(line, key=b"two")


def test_masking_twice_changes_nothing_more():
    line = "HF_TOKEN=hf_" + "a1B2" * 9
    once = safe.mask(line)
    assert once.startswith("HF_TOKEN=[hf-token:")
    assert safe.mask(once) == once


def test_a_secret_that_begins_like_a_mask_is_masked_all_the_same():
    assert "open" not in safe.mask("password=[open]sesame")


@pytest.mark.parametrize(
    "line",
    ["a" * 100_000, "token=" * 20_000, "a_" * 50_000, "http://" * 15_000, "wandb key " * 10_000, "--a-" * 25_000,
     "password " * 12_000, "-----BEGIN PRIVATE KEY-----" * 4_000, "a-token" * 15_000],
    ids=lambda line: line[:12],
)  # fmt: skip
def test_a_hostile_line_is_masked_in_linear_time(line):
    began = time.process_time()
    safe.mask(line)
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x9b1;31mred\x9bm", "red"),
        ("\x1b]52;c;aGk=\x07", "␛]52;c;aGk=␇"),
        ("\x1b[2J\x1b[H", "␛[2J␛[H"),
        ("real\rforged", "real␍forged"),
        ("a\tb", "a\tb"),
        ("one\ntwo", "one␊two"),
        ("\x00\x7f", "␀␡"),
        ("\x85\x90", "<U+0085><U+0090>"),
        ("ab\u202ecd\u2066\u200b", "ab<U+202E>cd<U+2066><U+200B>"),
        ("\u2028", "<U+2028>"),
        ("\udcff", "\ufffd"),
        ("[bold]x[/bold] [@click=app.quit]", "[bold]x[/bold] [@click=app.quit]"),
        ("naïve 日本語 \xa0", "naïve 日本語 \xa0"),
    ],
)
def test_what_a_terminal_would_obey_is_shown_as_a_symbol(raw, shown):
    assert safe.show(raw) == shown


@given(st.text(st.characters()), st.none() | st.integers(1, 40))
def test_shown_text_never_holds_a_control_character(text, limit):
    shown = safe.show(text, limit)
    assert all(char == "\t" or unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Zl", "Zp"} for char in shown)
    if limit is not None:
        assert len(shown) <= limit


@given(st.text(st.characters()))
def test_showing_twice_changes_nothing_more(text):
    assert safe.show(safe.show(text)) == safe.show(text)


@given(st.text(st.characters()))
def test_masking_arbitrary_text_never_fails(text):
    safe.mask("password=" + text)


def test_a_giant_line_keeps_its_head_and_its_tail():
    shown = safe.show("HEAD" + "x" * 1_000_000 + "TAIL", 100)
    assert len(shown) == 100
    assert shown.startswith("HEAD")
    assert shown.endswith("TAIL")
    assert " … " in shown


def test_a_block_keeps_its_newlines_and_drops_the_carriage_return_before_them():
    assert safe.show_block("a\r\nb\x1b") == "a\nb␛"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('id = "x"\nkeywords = []\nmatch = []', "`pattern` is missing"),
        ('id = "x"\nkeywords = []\nmatch = []\npattern = "(?P<secret>"', "unterminated"),
        ('id = "x"\nkeywords = []\nmatch = []\npattern = "abc"', "no group `secret`"),
    ],
)
def test_a_wrong_item_of_the_pattern_file_is_named(tmp_path, body, problem):
    path = tmp_path / "redact.toml"
    path.write_text(f"[[secret]]\n{body}\n")
    with pytest.raises(safe.RedactError, match=problem):
        safe.secret_patterns(path)
