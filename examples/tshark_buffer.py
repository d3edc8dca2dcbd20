"""A buffer between two processes: one writes lines as tshark would, the other takes them.

Shows fastresp.ListBuffer: one process pushes, 1,000 lines at a time, the other takes line by line
what was fetched for it in bulk. The lines are numbered, so the taker sees that none is lost, none
comes twice, and the order is kept. Where the taker is the slower one the writer waits, so that the
list does not fill the server's memory. The list is "example:packets", and gone at the end.

Run it with a server on this machine, or with another in REDIS_URL:

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
# More than this is not to wait in the list.
MOST = 100_000
# The taker gives up when there was nothing to take for so long.
WAIT_S = 5.0
LINE = b"%d 0.000123 10.0.0.1 -> 10.0.0.2 TCP 74 52044 -> 443 [SYN] Seq=0 Win=64240 Len=0 MSS=1460"
END = b"end"


def write(seconds: float) -> int:
    """Push numbered lines for so long, then the end; how many lines there were."""
    written = 0
    deadline = time.monotonic() + seconds
    with fastresp.ListBuffer(KEY, order="fifo") as buffer:
        try:
            while time.monotonic() < deadline:
                if len(buffer) > MOST:
                    time.sleep(0.001)
                    continue
                buffer.push([LINE % number for number in range(written, written + BATCH)])
                written += BATCH
        finally:
            buffer.push([END])
    return written


def take() -> int:
    """Take lines until the end, and look at their numbers; how many lines there were."""
    taken = 0
    with fastresp.ListBuffer(KEY, order="fifo") as buffer:
        for line in buffer.consume(block=WAIT_S):
            if line == END:
                return taken
            number = int(line.partition(b" ")[0])
            if number != taken:
                raise SystemExit(f"line {number:,} came where {taken:,} was expected")
            taken += 1
    raise SystemExit(f"no line came for {WAIT_S:g} seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="how long lines are written")
    args = parser.parse_args()
    with fastresp.ListBuffer(KEY, order="fifo") as buffer, ProcessPoolExecutor(2) as processes:
        buffer.clear()
        start = time.perf_counter()
        writing, taking = processes.submit(write, args.seconds), processes.submit(take)
        written, taken = writing.result(), taking.result()
        seconds = time.perf_counter() - start
        left = len(buffer)
        buffer.clear()
    print(f"written {written:12,} lines {written / args.seconds:12,.0f} lines/s")
    print(f"taken   {taken:12,} lines {taken / seconds:12,.0f} lines/s")
    if written != taken or left:
        raise SystemExit(f"{written - taken:,} lines were lost, {left:,} are left in the list")
    print("None is lost, none came twice, and they came in order.")


if __name__ == "__main__":
    main()
