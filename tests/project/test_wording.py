"""Every text of the project keeps to plain words: no phrase that a reader has to translate."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache

import pytest
from places import ROOT

# Each pattern with what to write instead, and a text that it refuses. A space matches line ends.
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
    r"who (works|reads|waits|asks|takes|wants)": ("a consumer that ...", "who takes an item"),
    r"on their way": ("in flight", "bytes on their way"),
    r"goes up|go up": ("propagates, is raised", "The error goes up."),
    r"goes on": ("resumes, continues", "The load goes on."),
    r"neighbours?|neighbouring": ("adjacent", "neighbouring rows"),
    r"file of rejects": ("rejects file", "the file of rejects"),
    r"(is|are) no numbers?": ("is not a number", "A score is no number."),
    r"lest": ("so that ... not", "lest it hangs"),
    r"ere|thereof|therein|wherein|whereof": ("plain words", "the rows thereof"),
    # A pronoun or a clause instead of a noun.
    r"those of": ("the noun again", "the rows, and those of the file"),
    r"the ones? before": ("the previous ..., its predecessor", "the one before"),
    r"the (second|row|script|command|chunk|value|line|batch|part|loader|server|run) before"
    r"(?! (it|they|you|its|the|a|that|which|any|each|an)\b)": (
        "the previous ..., its predecessor",
        "the script before has set it",
    ),
    r"(what|that|which|all|commands|rows|bytes|data|items) (came|comes) before": (
        "earlier ..., the noun",
        "what came before is sent",
    ),
    r"(?<!resume )(?<!resumes )where it (has )?stopped": ("resumes", "continues where it stopped"),
    r"last change": ("mtime", "the time of its last change"),
    r"(may|can|can't|must|must not|may not) (be )?(run|sent|loaded|counted|applied) twice": (
        "idempotent",
        "commands that may run twice",
    ),
    r"(sent|send|sends) twice": ("is resent", "rows were sent twice"),
    r"any more(?! than)": ("no longer", "It does not run any more."),
    r",? (too|also|as well)(?=[.;:]([\s\"|`)]|$))": ("rebuild the sentence", "It waits, too."),
    r"(?<=[.:;\"|]\s)Of (a|an|the|each|these|those|one|many|all|several) [^.,|]{1,60},": (
        "start with the subject",
        "It is kept. Of a file, the size is compared.",
    ),
    r"found later": ("discovered", "nodes that are found later"),
    r"come by then": ("registered by then", "what had come by then"),
    r"stands? for": ("means, represents", "A dash stands for stdout."),
    r"makes? of (it|them|some)": ("converts it to", "what DuckDB makes of it"),
    r"there in addition": ("unexpected", "keys that are there in addition"),
    r"rights? (to|of|is|are|that|was|were)": ("permission", "a right is missing"),
    r"(few|special|extra|missing|more) rights": ("permissions", "a user with few rights"),
}
TEXTS = ("*.md", "*.py", "*.pyi", "*.pyx", "*.pxd", "*.toml", "*.yml", ".ci/*")
# It has to name the phrases.
THIS = "tests/project/test_wording.py"
# The start of a line that continues a sentence.
CONTINUED = re.compile(r"\n[ \t]*(?:#|//|\*|>)?[ \t]*")


@cache
def texts(lower: bool = False) -> dict[str, str]:
    """Return every text by name, without indentation and the marks of comments."""
    if lower:
        return {name: text.lower() for name, text in texts().items()}
    listed = subprocess.run(
        ["git", "ls-files", *TEXTS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {
        name: CONTINUED.sub("\n", (ROOT / name).read_text())
        for name in listed.stdout.splitlines()
        if name != THIS
    }


def found(phrase: str, text: str) -> Iterator[re.Match[str]]:
    """Yield the matches of whole words; a pattern that starts with a letter is found fast."""
    spaced = phrase.replace(" ", r"\s")
    pattern, start = re.compile(rf"({spaced})(?!\w)"), 0
    while hit := pattern.search(text, start):
        start = hit.start() + 1
        if not re.match(r"\w", text[start - 2 : start - 1]):
            yield hit


def test_there_are_texts() -> None:
    assert sum(text.count("\n") for text in texts().values()) > 50_000


@pytest.mark.parametrize("phrase", BANNED)
def test_phrase(phrase: str) -> None:
    better, refused = BANNED[phrase]
    lower = phrase.islower()
    assert [*found(phrase, refused.lower() if lower else refused)]
    places = [
        f"{name}:{text.count(chr(10), 0, hit.start()) + 1}: {hit[0]!r}"
        for name, text in texts(lower).items()
        for hit in found(phrase, text)
    ]
    assert not places, f"say {better!r} instead:\n" + "\n".join(places)
