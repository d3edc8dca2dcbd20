"""Quotes of CSV, followed through blocks of any size, against a state machine in Python."""

from __future__ import annotations

import random

import pytest

from fastresp.sources.files.csv_text import Quotes

# The text with escapes replaced, the line of a wrong field, whether it has a backslash, and the
# line of an unclosed quote.
Found = tuple[bytes, int, bool, int]


def expected(text: bytes, escape: bytes) -> Found:
    out, at, line, opened, lines, before = b"", 0, 1, 0, False, b"\n"
    while at < len(text):
        byte, after = text[at : at + 1], text[at + 1 : at + 2]
        if not opened:
            if byte == b'"' and before in (b",", b"\n", b"\r"):
                opened, lines = line, False
        elif byte == b'"' == after or (escape == byte and after in (b'"', escape)):
            out += b'""' if after == b'"' else after
            before, at = after, at + 2
            continue
        elif byte == b'"':
            if after not in (b"", b",", b"\n", b"\r") and (lines or before == b"\\" != escape):
                return out + byte, opened, before == b"\\" != escape, 0
            opened = 0
        lines = lines or byte in (b"\n", b"\r")
        line += byte == b"\n"
        out, before, at = out + byte, byte, at + 1
    return out, 0, False, opened


def found(text: bytes, escape: bytes, chance: random.Random) -> Found:
    quotes, out, at = Quotes(b",", b'"', escape), b"", 0
    while at < len(text) and not quotes.fault:
        size = chance.choice([1, 2, 7, 40])
        out, at = out + quotes.feed(text[at : at + size]), at + size
    out += b"" if quotes.fault else quotes.finish()
    return out, quotes.fault, quotes.backslash, quotes.opened


@pytest.mark.parametrize("escape", [b"", b"\\"])
def test_quotes_in_blocks_of_any_size(escape: bytes) -> None:
    chance = random.Random(5)
    for _ in range(4000):
        size = chance.randrange(30)
        text = bytes(chance.choices(b'",\n\r\\ab', weights=[5, 3, 2, 1, 2, 1, 1], k=size))
        assert found(text, escape, chance) == expected(text, escape), text


def test_the_size_of_an_open_field() -> None:
    quotes = Quotes(b",", b'"', b"")
    quotes.feed(b'a\n1,"x')
    assert (quotes.opened, quotes.size, quotes.lines) == (2, 2, 1)
    quotes.feed(b"yz\n")
    assert (quotes.opened, quotes.size, quotes.lines) == (2, 5, 2)
