"""Every text of the project uses plain words: no phrase that a reader has to translate."""

from __future__ import annotations

import re
import subprocess
from functools import cache

import pytest
from places import ROOT

# The phrase on the left is refused, the middle is better, the text on the right is an example.
BANNED = {
    r"mend(s|ed|ing)?": ("fix", "It was mended."),
    r"so many": ("N, how many, that many", "so many rows"),
    r"so long": ("for S seconds, as long as", "It waits so long."),
    r"in the midst of": ("during", "in the midst of a load"),
    r"in mid-load": ("during a load", "killed in mid-load"),
    r"lets? wait": ("pauses, is idle", "a source that lets wait"),
    r"has none": ("has no ...", "if it has none"),
    r"a lot": ("much, many, or a figure", "a lot of rows"),
    r"shall": ("must, will", "It shall be sent."),
    r"tells": ("says, reports", "A report tells it."),
    r"for want of": ("because there is no ...", "for want of memory"),
    r"by and by": ("slowly", "It fills by and by."),
    r"for who(m|ever)?": ("for the caller, for people who", "for whoever asks"),
    r"who (works|reads|waits|asks|takes|wants) ": ("a consumer that ...", "who takes an item"),
    r"on their way": ("in flight", "bytes on their way"),
    r"goes up|go up": ("propagates, is raised", "The error goes up."),
    r"goes on": ("resumes, continues", "The load goes on."),
    r"neighbours?|neighbouring": ("adjacent", "neighbouring rows"),
    r"file of rejects": ("rejects file", "the file of rejects"),
    r"(is|are) no numbers?": ("is not a number", "A score is no number."),
    r"lest": ("so that ... not", "lest it hangs"),
    r"ere|thereof|therein|wherein|whereof": ("plain words", "the rows thereof"),
}
TEXTS = ("*.md", "*.py", "*.pyi", "*.pyx", "*.pxd", "*.toml", "*.yml", ".ci/*")
# This file has to name the phrases.
THIS = "tests/project/test_wording.py"


@cache
def lines() -> list[tuple[str, str]]:
    """Return every line of every text, with its place."""
    listed = subprocess.run(
        ["git", "ls-files", *TEXTS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [
        (f"{name}:{number}", line)
        for name in listed.stdout.splitlines()
        if name != THIS
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1)
    ]


def test_there_are_texts() -> None:
    assert len(lines()) > 50_000


@pytest.mark.parametrize("phrase", BANNED)
def test_phrase(phrase: str) -> None:
    pattern = re.compile(rf"\b({phrase})\b", re.IGNORECASE)
    better, refused = BANNED[phrase]
    assert pattern.search(refused)
    found = [f"{place}: {line.strip()}" for place, line in lines() if pattern.search(line)]
    assert not found, f"say {better!r} instead:\n" + "\n".join(found)
