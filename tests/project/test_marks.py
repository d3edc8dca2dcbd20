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
def test_the_cases_that_are_not_among_the_few_are_slow() -> None:
    everything, few, slow = map(collected, ("not long", "not slow and not long", "slow"))
    assert len(few) == 3
    assert len(everything) > 20
    assert few | slow == everything
    assert not few & slow
