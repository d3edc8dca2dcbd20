"""Run a scenario for test_forks.py, which forks during a call; the child leaves.

``python forking.py SCENARIO URL FOLDER`` runs the scenario for each way to leave, and prints the
outcome in the parent.
"""

from __future__ import annotations

import os
import sys

import forking_loads
import forking_replies
from fork import Fork, Leaving, client

# How the child leaves; with "on" it continues as if it were the parent.
WAYS = ("exception", "exit", "at once", "on")


def main() -> None:
    scenarios = {**vars(forking_loads), **vars(forking_replies)}
    scenario = scenarios[sys.argv[1]]
    for how in WAYS:
        with client() as asked:
            asked.flushall()
        fork = Fork(how)
        try:
            right = scenario(fork)
        except Leaving:
            sys.exit(3)
        except Exception as error:
            if os.getpid() == fork.parent:
                raise
            words = str(error)
            sys.exit(7 if "parent process" in words else f"{type(error).__name__}: {words}")
        if os.getpid() != fork.parent:
            sys.exit(0)
        assert fork.done, "nothing was forked"
        print(how, "right" if right else "WRONG", flush=True)


if __name__ == "__main__":
    main()
