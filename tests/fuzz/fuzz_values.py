"""Fuzz the readers and converters of stored values. README.md here says how to run it.

An input is the type of a value and its bytes: a DUMP payload without its footer.
"""

from __future__ import annotations

import os
import sys
from array import array
from hashlib import sha1
from pathlib import Path

import atheris
import redis

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from damaged_values import is_sound
from every_encoding import fill
from payload_model import FOOTER_BYTES

from fastresp.server.local_server import LocalServer

MAX_SEED_BYTES = 2000


def test_one_input(data: bytes) -> None:
    """Read a value from memory without spare bytes, so that the sanitizer catches any overread."""
    if data:
        value = array("B", [0]) * (len(data) - 1)
        memoryview(value)[:] = data[1:]
        is_sound(data[0], value)


def write_seeds(corpus: Path) -> None:
    """Write small values of every type that a server knows, with and without compression."""
    corpus.mkdir(exist_ok=True)
    with LocalServer() as server:
        client = redis.Redis.from_url(server.url)
        for compression in ("yes", "no"):
            client.config_set("rdbcompression", compression)
            fill(client)
            for key in client.scan_iter():
                seed = client.dump(key)[:-FOOTER_BYTES]
                if len(seed) <= MAX_SEED_BYTES:
                    (corpus / sha1(seed).hexdigest()).write_bytes(seed)
            client.flushall()


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
