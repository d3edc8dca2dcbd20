"""The mark ``few`` drops no case, and missing requirements fail in CI."""

from __future__ import annotations

import subprocess
import sys

import pytest
from needed import file_of, imported, lacking
from places import ROOT

FILE = "tests/server/test_forks.py"


def collected(marks: str) -> set[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "-m", marks, FILE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {line for line in done.stdout.splitlines() if "::test_fork[" in line}


@pytest.mark.slow
def test_the_cases_that_are_not_among_the_few_are_slow_or_long() -> None:
    marks = ("slow or not slow", "not slow and not long", "slow", "long")
    everything, few, slow, long = map(collected, marks)
    assert (len(few), len(slow)) == (1, 4)
    assert len(everything) > 20
    assert few | slow | long == everything
    assert len(few) + len(slow) + len(long) == len(everything)


def test_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package or a program that a test needs must be installed in CI."""
    skipped, failed = pytest.skip.Exception, pytest.fail.Exception
    for ci, outcome in (("", skipped), ("true", failed)):
        monkeypatch.setenv("CI", ci)
        with pytest.raises(outcome, match="no_such"):
            imported("no_such.module")
        with pytest.raises(outcome, match="no_such"):
            file_of("no_such", "data.csv")
        with pytest.raises(skipped):
            lacking("Python 3.11 has it", fails=False)
    for path in (ROOT / "tests").rglob("*.py"):
        assert ".importor" + "skip(" not in path.read_text(), f"{path}: use needed.imported()"
