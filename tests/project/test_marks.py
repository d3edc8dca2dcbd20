"""The mark ``few``: it drops no case."""

from __future__ import annotations

import subprocess
import sys

import pytest
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
    assert (len(few), len(slow)) == (3, 15)
    assert len(everything) > 20
    assert few | slow | long == everything
    assert len(few) + len(slow) + len(long) == len(everything)
