"""Fuzz the readers of RDB files. README.md here says how to run it.

An input is an RDB file. Its checksum is set to 0, which means none.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from rdb_files import every_opcode, finished, read_every_way, saved

from fastresp.outcome.errors import SourceError
from fastresp.sources.files.rdb import RdbReader

# The least bytes of a file: its version, the end, and the checksum.
LEAST = 18


def test_one_input(data: bytes) -> None:
    read_every_way(data[:-8] + bytes(8) if len(data) >= LEAST else data)


def write_seeds(corpus: Path) -> None:
    """Write files with every opcode, and with one small key of each type and encoding."""
    corpus.mkdir(exist_ok=True)
    for head in (b"REDIS0011", b"VALKEY080"):
        (corpus / head.decode()).write_bytes(finished(every_opcode(), head))
    with saved("redis-7.0") as (_, path), suppress(SourceError):
        reader = RdbReader(BytesIO(path.read_bytes()).read)
        while (batch := reader.batch()) is not None:
            for number, value in enumerate(batch.values):
                if len(value) < 1000:
                    seed = finished(value[:1] + b"\x01k" + value[1:])
                    (corpus / f"{reader.offset}-{number}").write_bytes(seed)


def main() -> None:
    """Write the seeds to the directory in the first argument, then fuzz."""
    corpus = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    preloaded = os.environ.pop("LD_PRELOAD", None)  # the server is not instrumented
    if corpus and not corpus.name.startswith("-") and not corpus.is_file():
        write_seeds(corpus)
    if preloaded:
        os.environ["LD_PRELOAD"] = preloaded
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
