"""The benchmarks pin a server and its client to cores, and release them afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from needed import lacking
from places import BENCH

# Appended, not inserted: bench also has a columns.py.
sys.path.append(str(BENCH))

from c_programs import CClient, NotAvailable, compiled_client
from cores import apart, one_core
from turns import server_seconds

from fastresp.server.local_server import LocalServer

SHOW = "import os; print(len(os.sched_getaffinity(0)))"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs sched_setaffinity")
def test_one_core_and_apart() -> None:
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
        with apart(server.process.pid):
            mine, its = (os.sched_getaffinity(pid) for pid in pids)
            assert len(mine) == len(its) == 1
            assert (mine == its) == (len(before[0]) == 1)
        assert [os.sched_getaffinity(pid) for pid in pids] == before


def test_a_server_that_ended_is_not_an_error() -> None:
    with LocalServer() as server, one_core(server.process.pid):
        server.stop()


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="needs /proc/self/schedstat")
def test_c_client_reports_the_cpu_time_of_the_server() -> None:
    try:
        with compiled_client() as program, LocalServer() as server:
            process = psutil.Process(server.process.pid)
            client = CClient(program, server.socket)
            before = server_seconds(process)
            pushing, popping, *cpu = client.run_in_turn("lpush", "rpop", 2_000, 100, process.pid)
            used = server_seconds(process) - before
    except NotAvailable as error:
        lacking(str(error))
    assert min(pushing, popping) > 0
    assert min(cpu) > used / 10
    # The remaining time is spent connecting. The times are whole nanoseconds.
    assert used / 2 < sum(cpu)
    assert round(sum(cpu), 9) <= round(used, 9)
