"""A buffer between two processes: one writes lines like tshark's, the other reads them.

Shows fastresp.ListBuffer: the writer pushes 1,000 lines at a time; the reader gets one line at a
time, fetched in bulk. The lines are numbered, so the reader checks that they are complete, unique
and in order. If the reader is slower, the writer waits, so that the list does not fill the
server's memory. The list "example:packets" is deleted at the end.

Run it with a server on this machine, or set REDIS_URL:

    python examples/tshark_buffer.py
    python examples/tshark_buffer.py --seconds 2
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor

import fastresp

KEY = "example:packets"
BATCH = 1_000
# The writer waits while the list has more lines than this.
MAX_LINES = 100_000
# The reader raises an error after this many seconds without a line.
WAIT_S = 5.0
LINE = b"%d 0.000123 10.0.0.1 -> 10.0.0.2 TCP 74 52044 -> 443 [SYN] Seq=0 Win=64240 Len=0 MSS=1460"
END = b"end"


def write(seconds: float) -> int:
    """Push numbered lines for this long, then the end mark; return the number of lines."""
    written = 0
    deadline = time.monotonic() + seconds
    with fastresp.ListBuffer(KEY) as buffer:
        try:
            while time.monotonic() < deadline:
                if len(buffer) > MAX_LINES:
                    time.sleep(0.001)
                    continue
                buffer.push([LINE % number for number in range(written, written + BATCH)])
                written += BATCH
        finally:
            buffer.push([END])
    return written


def read() -> int:
    """Read lines up to the end mark, and check their numbers; return the number of lines."""
    count = 0
    with fastresp.ListBuffer(KEY) as buffer:
        for line in buffer.consume(block=WAIT_S):
            if line == END:
                return count
            number = int(line.partition(b" ")[0])
            if number != count:
                raise SystemExit(f"got line {number:,} instead of line {count:,}")
            count += 1
    raise SystemExit(f"no line for {WAIT_S:g} seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds to write lines")
    args = parser.parse_args()
    with fastresp.ListBuffer(KEY) as buffer, ProcessPoolExecutor(2) as processes:
        buffer.clear()
        start = time.perf_counter()
        writing, reading = processes.submit(write, args.seconds), processes.submit(read)
        written, count = writing.result(), reading.result()
        seconds = time.perf_counter() - start
        left = len(buffer)
        buffer.clear()
    print(f"written {written:12,} lines {written / args.seconds:12,.0f} lines/s")
    print(f"read    {count:12,} lines {count / seconds:12,.0f} lines/s")
    if written != count or left:
        raise SystemExit(f"lines lost: {written - count:,}; left in the list: {left:,}")
    print("No line was lost or repeated, and the order was kept.")


if __name__ == "__main__":
    main()
