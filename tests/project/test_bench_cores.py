"""The benchmarks' cores: a server and what goes to it are kept there, and let go afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from places import BENCH

# Last, for bench has a columns.py, too.
sys.path.append(str(BENCH))

from c_client import CClient, NotAvailable, compiled
from cores import one_core, take_noted, two_cores
from results import Result
from turns import server_seconds

from fastresp.server.local_server import LocalServer

SHOW = "import os; print(len(os.sched_getaffinity(0)))"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system can't")
def test_one_core_and_two() -> None:
    with LocalServer() as server:
        pids = (0, server.process.pid)
        before = [os.sched_getaffinity(pid) for pid in pids]
        with pytest.raises(ZeroDivisionError), one_core(server.process.pid):
            mine, its = (os.sched_getaffinity(pid) for pid in pids)
            assert mine == its
            assert len(mine) == 1
            child = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True)
            assert child.stdout == "1\n"
            _ = 1 / 0
        assert [os.sched_getaffinity(pid) for pid in pids] == before
        with two_cores(server.process.pid):
            mine, its = (os.sched_getaffinity(pid) for pid in pids)
            assert len(mine) == len(its) == 1
            assert (mine == its) == (len(before[0]) == 1)
        assert [os.sched_getaffinity(pid) for pid in pids] == before


def test_a_server_that_ended_is_no_error() -> None:
    with LocalServer() as server, one_core(server.process.pid):
        server.stop()


def test_what_is_noted() -> None:
    import redis

    with LocalServer() as server, redis.Redis.from_url(server.url) as client:
        client.ping()
        result = Result("a table", "a row", operations=100)

        def pings() -> None:
            for _ in range(100):
                client.ping()

        process = psutil.Process(server.process.pid)
        take_noted(result, pings, process, keep=False)
        assert result.details == []
        take_noted(result, pings, process, items=3)
        [noted] = result.details
        assert noted["items"] == 3
        # It waits for each, or is made to.
        assert noted["voluntary"] + noted["involuntary"] >= 50
        # Of the last minute, which changes slowly.
        assert noted["load"] == pytest.approx(os.getloadavg()[0], abs=1)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system can't tell")
def test_the_c_client_tells_what_the_server_did() -> None:
    try:
        with compiled() as program, LocalServer() as server:
            process = psutil.Process(server.process.pid)
            client = CClient(program, server.socket)
            before = server_seconds(process)
            pushing, popping, *cpu = client.run_in_turn("lpush", "rpop", 2_000, 100, process.pid)
            used = server_seconds(process) - before
    except NotAvailable as error:
        pytest.skip(str(error))
    assert min(pushing, popping) > 0
    assert min(cpu) > used / 10
    # What is left is the connecting.
    assert used / 2 < sum(cpu) <= used
