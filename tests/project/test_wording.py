"""Every text of the project keeps to plain words: no phrase that a reader has to translate."""

from __future__ import annotations

import re
import subprocess
from functools import cache

import pytest
from places import ROOT

# What is written on the left is said better as on the right.
BANNED = {
    r"mend(s|ed|ing)?": "fix",
    r"so many": "N, how many, that many",
    r"so long": "for S seconds, as long as",
    r"in the midst of": "during",
    r"in mid-load": "during a load",
    r"lets? wait": "pauses, is idle",
    r"has none": "has no ...",
    r"a lot": "much, many, or a figure",
    r"shall": "must, will",
    r"tells": "says, reports",
    r"for want of": "because there is no ...",
    r"by and by": "slowly",
    r"for who(m|ever)?": "for the caller, for people who",
    r"who (works|reads|waits|asks|takes|wants) ": "a consumer that ..., a caller that ...",
    r"on their way": "in flight",
    r"goes up|go up": "propagates, is raised",
    r"lest": "so that ... not",
    r"ere|thereof|therein|wherein|whereof": "plain words",
}
TEXTS = ("*.md", "*.py", "*.pyi", "*.pyx", "*.pxd", "*.toml", "*.yml", ".ci/*")
# It has to name the phrases.
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
    found = [f"{place}: {line.strip()}" for place, line in lines() if pattern.search(line)]
    assert not found, f"say {BANNED[phrase]!r} instead:\n" + "\n".join(found)
