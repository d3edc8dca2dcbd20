"""Time to read replies: fastresp's scanner, which counts them, and hiredis, which builds objects.

The work is the same: 10,000 equal replies, in pieces of 64 KiB as redis-py reads them. The scanner
counts them and keeps the errors; of hiredis.Reader gets() is called until there is no more.

    python bench/replies.py -o replies.json
    python bench/replies.py --fast

Times are those of one reply.
"""

from __future__ import annotations

from time import perf_counter

import hiredis
import pyperf

from fastresp.cli.demo.generators import PAYLOAD
from fastresp.resp.scan import ReplyScanner

REPLIES = 10_000
PIECE_BYTES = 65_536
KINDS = {
    "+OK": b"+OK\r\n",
    ":123456": b":123456\r\n",
    "$129": b"$%d\r\n%b\r\n" % (len(PAYLOAD), PAYLOAD.encode()),
    "array of 3": b"*3\r\n$5\r\nfield\r\n:123456\r\n$-1\r\n",
    "error": b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
}


def scan(loops: int, pieces: list[bytes]) -> float:
    start = perf_counter()
    for _ in range(loops):
        scanner = ReplyScanner()
        for piece in pieces:
            scanner.feed(piece)
    return perf_counter() - start


def parse(loops: int, pieces: list[bytes]) -> float:
    start = perf_counter()
    for _ in range(loops):
        reader = hiredis.Reader()
        for piece in pieces:
            reader.feed(piece)
            while reader.gets() is not False:
                pass
    return perf_counter() - start


def main() -> None:
    """Run all benchmarks."""
    runner = pyperf.Runner()
    runner.metadata["description"] = "Read 10,000 replies, time a reply"
    runner.metadata["hiredis_version"] = hiredis.__version__
    for name, reply in KINDS.items():
        data = reply * REPLIES
        assert ReplyScanner().feed(data) == REPLIES
        pieces = [data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)]
        runner.bench_time_func(f"{name} fastresp", scan, pieces, inner_loops=REPLIES)
        runner.bench_time_func(f"{name} hiredis", parse, pieces, inner_loops=REPLIES)


if __name__ == "__main__":
    main()
