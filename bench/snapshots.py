"""Read an RDB file of hashes: as columns, to Parquet, and with another parser, rdb-py.

The file has the rows of ``load.py``: hashes of ten fields, written by ``fastresp dump``. Each
contender is a process. Before the measurement, the contents are compared with rdb-py's, if rdb-py
is installed. rdb-py only returns Python objects.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from load import PROGRAM, ROWS, dump_command, run_watched, write_parquet
from results import Result
from script import run_script
from turns import Contender, Timed, entries, measure

FIELDS = "name,city,age,balance,score,visits,active,seen,referrer"
COLUMNS = """
import sys, fastresp, pyarrow
names = sys.argv[2].split(",") if sys.argv[2:] else None
table = fastresp.read(sys.argv[1], match="row:{id}", fields=names)
for batch in pyarrow.RecordBatchReader.from_stream(table): pass
"""
OBJECTS = """
import sys, rdb
for item in rdb.RdbDecoder(sys.argv[1]): pass
"""
COMPARE = """
import sys, fastresp, pyarrow, rdb
table = fastresp.read(sys.argv[1], match="*", binary=True)
rows = (row for batch in pyarrow.RecordBatchReader.from_stream(table) for row in batch.to_pylist())
for item in rdb.RdbDecoder(sys.argv[1]):
    if item["type"] == "hash":
        row = next(rows)
        assert row.pop("key") == item["key"]
        values = {name.encode(): value for name, value in row.items() if value is not None}
        assert values == item["values"], item["key"]
assert next(rows, None) is None
"""


def compare(args: argparse.Namespace) -> list[Result]:
    with tempfile.TemporaryDirectory() as name:
        source, target = Path(name) / "rows.parquet", Path(name) / "dump.rdb"
        write_parquet(source, args.rows)
        run_watched(dump_command(source, target))
        unload = [*PROGRAM, "unload", str(target), "--match", "row:{id}"]
        unload += ["-o", f"{name}/out.parquet"]
        # -P: rdb.py in this folder has the name of rdb-py's module.
        code = [sys.executable, "-P", "-c"]
        size = target.stat().st_size

        def watched(*command: str) -> Timed:
            before = sum(os.times()[2:4])  # CPU time of the processes that have ended
            seconds, details = run_watched([*command])
            used = sum(os.times()[2:4]) - before
            return Timed(seconds, details | {"bytes": size, "client_cpu": used})

        runs: dict[str, Contender | str] = {
            "columns": partial(watched, *code, COLUMNS, str(target)),
            "columns, fields named": partial(watched, *code, COLUMNS, str(target), FIELDS),
            "Parquet": partial(watched, *unload),
            "Parquet, fields named": partial(watched, *unload, "--fields", FIELDS),
            "rdb-py objects": partial(watched, *code, OBJECTS, str(target)),
        }
        if subprocess.run([*code, "import rdb"], capture_output=True).returncode:
            runs["rdb-py objects"] = "rdb-py is not installed: pip install rdb-py"
        else:
            subprocess.run([*code, COMPARE, str(target)], check=True)
        return measure(entries("snapshots", runs, args.rows), args.rounds, warm_up=False)


if __name__ == "__main__":
    run_script(__doc__, compare, 6, 2, rows=("rows of the Parquet file", ROWS))
