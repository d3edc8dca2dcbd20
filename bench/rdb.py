"""An RDB file from Parquet: written, and read by a server at start, compared with live loads.

The Parquet file is made as in ``load.py``. The live loads use commands, ``mode="serialize"`` and
``mode="replicate"``. In the first round, DEBUG DIGEST must be the same after a server's start with
the file, and after each load.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import psutil
import redis
from load import PROGRAM, ROWS, TEMPLATE, dump_command, run_watched, write_parquet
from results import Result
from script import run_script
from turns import Timed, show, time_once

from fastresp.cli.demo.methods import debug_options
from fastresp.server.local_server import LocalServer

# Seconds between the PINGs that ask a server whether it has read the file.
PING_S = 0.01
LIVE = {
    "live load": (),
    "live load, serialised": ("--mode", "serialize"),
    "live load, replicated": ("--mode", "replicate"),
}


def digest(server: LocalServer, rows: int) -> bytes:
    """Check the number of keys; return the digest of the data."""
    with redis.Redis.from_url(server.url, socket_timeout=None) as client:
        if (held := client.dbsize()) != rows:
            raise SystemExit(f"the server has {held:,} of {rows:,} rows")
        return client.execute_command("DEBUG", "DIGEST")


def compare(args: argparse.Namespace) -> list[Result]:
    names = "written", "read at start", *LIVE
    written, read, *live = made = [Result("rdb", name, "", args.rows) for name in names]
    with tempfile.TemporaryDirectory() as name:
        source, target = Path(name) / "rows.parquet", Path(name) / "dump.rdb"
        write_parquet(source, args.rows)

        def write() -> Timed:
            seconds, details = run_watched(dump_command(source, target))
            return Timed(seconds, details | {"bytes": target.stat().st_size})

        def start() -> None:
            server.__enter__()
            with redis.Redis.from_url(server.url, socket_timeout=None) as client:
                while True:
                    try:
                        client.ping()
                        return
                    except redis.exceptions.BusyLoadingError:
                        time.sleep(PING_S)

        def add(result: Result, found: Timed) -> None:
            result.add(found.value, round=number, **found.details)

        for number in range(1, args.rounds + 1):
            show(f"rdb, round {number} of {args.rounds}")
            add(written, time_once(write))
            server = LocalServer(*debug_options(), "--dir", name, "--dbfilename", target.name)
            try:
                add(read, time_once(start))
                found = digest(server, args.rows) if number == 1 else b""
            finally:
                server.__exit__()
            for result, options in zip(live, LIVE.values(), strict=True):
                with LocalServer(*debug_options()) as other:
                    load = [*PROGRAM, "load", str(source), TEMPLATE, *options]
                    load += ["--server", other.url]
                    process = psutil.Process(other.process.pid)
                    add(result, time_once(lambda load=load: run_watched(load)[0], process))
                    if number == 1 and digest(other, args.rows) != found:
                        raise SystemExit(f"the file and the {result.row} made different data")
    show("")
    return made


if __name__ == "__main__":
    run_script(__doc__, compare, 6, 2, rows=("rows of the Parquet file", ROWS))
