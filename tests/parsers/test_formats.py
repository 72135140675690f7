import polars as pl
import pytest

from parsers.lineformats import FORMATS_DIR, FormatError, check_format, load_format, load_formats

FILES = sorted(FORMATS_DIR.glob("*.toml"))
HEAD = 'id = "x"\ntitle = "t"\nurl = "u"\n'
MESSAGE = '[[message]]\nid = "m"\nrole = "root"\npattern = "x"\nkeywords = ["x"]\n'


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_pattern_matches_its_samples_and_no_counterexample(path):
    assert check_format(load_format(path)) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_pattern_is_in_the_subset_that_linear_time_engines_share(path):
    fmt = load_format(path)
    patterns = {prefix.id: prefix.pattern for prefix in fmt.prefixes}
    patterns |= {message.id: message.pattern for message in fmt.messages}
    patterns |= {f"{message.id} unless {text}": text for message in fmt.messages for text in message.unless}
    for name, pattern in patterns.items():
        try:
            pl.Series([""]).str.contains(pattern)
        except pl.exceptions.ComputeError as error:
            pytest.fail(f"{name}: {error}")


def test_ids_are_unique_over_all_files():
    assert {path.stem for path in FILES}
    assert load_formats()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("id = ", "bad.toml: "),
        ('id = "x"\ntitle = "t"\n', "`url` is missing"),
        (HEAD + 'colour = "red"\n', "unknown key 'colour'; known are"),
        (HEAD + '[[prefix]]\nid = "p"\n', "`pattern` is missing"),
        (HEAD + '[[prefix]]\nid = "p"\npattern = "^x"\nstamp = "noon"\n', "stamp 'noon' is not one of asctime,"),
        (
            HEAD + '[[message]]\nid = "m"\nrole = "villain"\npattern = "x"\nkeywords = ["x"]\n',
            "role 'villain' is not one of root,",
        ),
        (
            HEAD + '[[message]]\nid = "m"\nrole = "root"\nkind = "gremlin"\npattern = "x"\nkeywords = ["x"]\n',
            "kind 'gremlin' is not one of",
        ),
        (
            HEAD + '[[prefix]]\nid = "p"\npattern = "^x"\n[[prefix.sample]]\ntext = "x"\n',
            "a sample needs `line`",
        ),
        (
            HEAD + '[[prefix]]\nid = "p"\npattern = "^x"\n[[prefix]]\nid = "p"\npattern = "^y"\n',
            "the id is already used in bad.toml [p]",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_its_name_and_what_to_change(tmp_path, text, told):
    (tmp_path / "bad.toml").write_text(text, encoding="utf-8")
    with pytest.raises(FormatError) as caught:
        load_formats(tmp_path)
    assert "bad.toml" in str(caught.value)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("item", "told"),
    [
        ('[[prefix]]\nid = "p"\npattern = "^x"\n', "no sample"),
        ('[[prefix]]\nid = "p"\npattern = "^x"\n[[prefix.sample]]\nline = "y"\n', "does not match its sample 'y'"),
        (
            '[[prefix]]\nid = "p"\npattern = "^x"\nstarts = "y"\n[[prefix.sample]]\nline = "x"\n',
            "`starts` lacks 'x'",
        ),
        (
            '[[message]]\nid = "m"\nrole = "root"\npattern = "x"\nkeywords = ["z"]\n[[message.sample]]\nline = "x"\n',
            "none of its keywords",
        ),
        (
            MESSAGE + 'no_match = ["xy"]\n[[message.sample]]\nline = "x"\n',
            "matches what it must not: 'xy'",
        ),
    ],
)
def test_a_format_that_contradicts_its_samples_is_told_so(tmp_path, item, told):
    path = tmp_path / "odd.toml"
    path.write_text(HEAD + item, encoding="utf-8")
    problems = check_format(load_format(path))
    assert any(told in problem for problem in problems)
