"""Time to read replies: fastresp's scanner, which counts them, and hiredis, which makes objects.

Both read 10,000 equal replies, in pieces of 64 KiB as redis-py does. The scanner counts them and
keeps the errors; ``hiredis.Reader.gets()`` is called until no reply is left.

The two take turns within a round. A value is the time per reply; the work is repeated, so that a
turn lasts 100 ms or more.

    python bench/replies.py -o replies.json      # less than 1 minute
    python bench/replies.py --fast
"""

from __future__ import annotations

import hiredis
from common import finish_encoding, repeated
from results import Result
from turns import arguments, measure

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


def scan(pieces: list[bytes]) -> None:
    """Count the replies with fastresp."""
    scanner = ReplyScanner()
    for piece in pieces:
        scanner.feed(piece)


def parse(pieces: list[bytes]) -> None:
    """Make an object of each reply with hiredis."""
    reader = hiredis.Reader()
    for piece in pieces:
        reader.feed(piece)
        while reader.gets() is not False:
            pass


def compare(name: str, reply: bytes, rounds: int) -> list[Result]:
    """Time both in turn."""
    data = reply * REPLIES
    assert ReplyScanner().feed(data) == REPLIES
    pieces = [data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)]
    made = [
        (Result("replies", f"{name} fastresp"), repeated(lambda: scan(pieces), REPLIES)),
        (Result("replies", f"{name} hiredis"), repeated(lambda: parse(pieces), REPLIES)),
    ]
    measure(made, rounds)
    return [result for result, _ in made]


def main() -> None:
    """Measure, print the tables, write the results."""
    _, parsed = arguments(__doc__.splitlines()[0], rounds=50, fast_rounds=10)
    args = parsed()
    groups = [compare(name, reply, args.rounds) for name, reply in KINDS.items()]
    finish_encoding(groups, "reply", args.output)


if __name__ == "__main__":
    main()
