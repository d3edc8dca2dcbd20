"""An RDB file from Parquet: written, and read by a server at start, compared with a live load.

The Parquet file of ``load.py``, 5,000,000 rows of 10 columns, becomes a hash per row in three ways,
in turn:

- ``written``: ``fastresp dump --format rdb``, as a process, until the file is on disk. The peak
  memory of the process, with the interpreter, is in the metadata, ``peak_bytes``, and the size of
  the file, ``bytes``.
- ``read at start``: a server is started with that file, until a PONG that is not LOADING.
- ``live load``: ``fastresp load``, as a process, into an empty server.

In the first round DEBUG DIGEST must be the same after the last two.

    python bench/rdb.py -o rdb.json              # about 8 minutes, 2 GB of memory, 1 GB of disk
    python bench/rdb.py --rows 200000 --rounds 1
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import redis
from load import ROWS, TEMPLATE, Peak, write_parquet
from results import Result
from turns import arguments, finish, show, take

from fastresp.cli.demo.methods import debug_options
from fastresp.server.local_server import LocalServer

PROGRAM = [sys.executable, "-m", "fastresp"]
# The interval at which the server is asked whether it has read the file, in seconds.
ASKED_S = 0.01


def run(command: list[str]) -> int:
    """Run a process to its end; return its peak memory."""
    program = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = Peak(program.pid)
    code = program.wait()
    peak.stop()
    if code:
        raise SystemExit(f"{' '.join(command)} failed with exit code {code}")
    return peak.bytes


def digest(server: LocalServer, rows: int) -> bytes:
    """Check the number of keys; return the digest of the data."""
    with redis.Redis.from_url(server.url, socket_timeout=None) as client:
        if (held := client.dbsize()) != rows:
            raise SystemExit(f"the server has {held:,} of {rows:,} rows")
        return client.execute_command("DEBUG", "DIGEST")


def start(server: LocalServer) -> None:
    """Start a server, and wait until it has read its file."""
    server.__enter__()
    with redis.Redis.from_url(server.url, socket_timeout=None) as client:
        while True:
            try:
                client.ping()
                return
            except redis.exceptions.BusyLoadingError:
                time.sleep(ASKED_S)


def compare(rows: int, rounds: int) -> list[Result]:
    """Write, read and load, in rounds; return a row for each."""
    written, read, live = made = [
        Result("rdb", name, "", rows) for name in ("written", "read at start", "live load")
    ]
    peaks: list[int] = []
    with tempfile.TemporaryDirectory() as name:
        source, target = Path(name) / "rows.parquet", Path(name) / "dump.rdb"
        write_parquet(source, rows)
        pack = [*PROGRAM, "dump", str(source), TEMPLATE, "--format", "rdb", "-o", str(target)]
        place = ["--dir", name, "--dbfilename", target.name]
        for number in range(1, rounds + 1):
            show(f"rdb, round {number} of {rounds}")
            take(written, lambda: peaks.append(run(pack)))
            written.details[-1] |= {"bytes": target.stat().st_size, "peak_bytes": peaks.pop()}
            server = LocalServer(*debug_options(), *place)
            try:
                take(read, partial(start, server))
                found = digest(server, rows) if number == 1 else b""
            finally:
                server.__exit__()
            with LocalServer(*debug_options()) as server:
                load = [*PROGRAM, "load", str(source), TEMPLATE, "--server", server.url]
                take(live, partial(run, load))
                if number == 1 and digest(server, rows) != found:
                    raise SystemExit("the file and the load did not make the same data")
    return made


def main() -> None:
    """Measure, print, write the results."""
    parser, parsed = arguments(__doc__.splitlines()[0], rounds=6, fast_rounds=2)
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the Parquet file")
    args = parsed()
    if args.rows < 1:
        parser.error("--rows must be 1 or more")
    made = compare(args.rows, args.rounds)
    show("")
    finish(made, args.output)


if __name__ == "__main__":
    main()
