"""A `.env` file is read as a shell would read it, with nothing expanded."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuecraft.config.dotenv import parse


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("A=1", "1"),
        ("A=1\n", "1"),
        ("A=1\r\n", "1"),
        ("  A = 1  ", "1"),
        ("\tA=1", "1"),
        ("export A=1", "1"),
        ("export\t A=1", "1"),
        ("A=", ""),
        ("A=''", ""),
        ('A=""', ""),
        ("A=1 # comment", "1"),
        ("A= # comment", ""),
        ("A=#comment", ""),
        ("A=a#b", "a#b"),
        ("A=a=b==", "a=b=="),
        ("A=two words", "two words"),
        ("A='a # b' # comment", "a # b"),
        ('A="a # b" # comment', "a # b"),
        ("A='$HOME ${B} \\n'", "$HOME ${B} \\n"),
        ("A=$HOME/${B}", "$HOME/${B}"),
        ('A="$HOME"', "$HOME"),
        (r'A="a\"b\\c\n\t\$d\q"', 'a"b\\c\n\t$d\\q'),
        ("A='first\nsecond'", "first\nsecond"),
        ('A="first\nsecond"', "first\nsecond"),
        ("A='it''s'", None),
        ("A=it's", "it's"),
        ("# A=2\n\n   # more\nA=1", "1"),
        ("A=1\nA=2", "2"),
        ("A=é", "é"),
    ],
)
def test_a_value_is_what_a_shell_would_see(text: str, value: str | None) -> None:
    found, wrong = parse(text)
    if value is None:
        assert wrong == [1]
    else:
        assert wrong == []
        assert found["A"].value == value


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("oops", [1]),
        ("export A", [1]),
        ("=1", [1]),
        ("1A=1", [1]),
        ("A B=1", [1]),
        ("A='open", [1]),
        ('A="open', [1]),
        ('A="open\\"', [1]),
        ("A='a'b", [1]),
        ("A='a'#b", [1]),
        ("{}", [1]),
        ("A=1\noops\n\nB=2\nalso bad\n", [2, 5]),
        ("A='first\nsecond'\noops", [3]),
    ],
)
def test_a_line_that_sets_nothing_is_told_by_its_number(text: str, lines: list[int]) -> None:
    assert parse(text)[1] == lines


def test_what_is_good_is_read_beside_what_is_not() -> None:
    found, wrong = parse("A=1\noops\nB=2\n")
    assert {name: (line.value, line.number) for name, line in found.items()} == {
        "A": ("1", 1),
        "B": ("2", 3),
    }
    assert wrong == [2]


@given(st.text())
def test_any_text_is_read_to_its_end(text: str) -> None:
    found, wrong = parse(text)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1
    assert all(1 <= number <= lines for number in wrong)
    assert all(1 <= line.number <= lines for line in found.values())


plain = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"))


@given(plain)
def test_what_a_shell_would_quote_comes_back_as_it_was(value: str) -> None:
    quoted = shlex.quote(value)
    if "'\"'\"'" not in quoted and not quoted[0].isspace():
        found, wrong = parse(f"A={quoted}\nB=2")
        assert (found["A"].value, found["B"].value, wrong) == (value, "2", [])


@given(plain)
def test_double_quotes_hold_any_value(value: str) -> None:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    found, wrong = parse(f'export A="{escaped}" # comment\nB=2')
    assert (found["A"].value, found["B"].value, wrong) == (value, "2", [])
