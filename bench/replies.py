"""Time to read replies: fastresp's scanner, which counts them, and hiredis, which makes objects.

Both read equal replies, in pieces of 64 KiB as redis-py does.
"""

from __future__ import annotations

import argparse

import hiredis
from results import Result
from script import run_script
from turns import entries, measure, repeated

from fastresp.cli.demo.methods import PAYLOAD
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
    scanner = ReplyScanner()
    for piece in pieces:
        scanner.feed(piece)


def parse(pieces: list[bytes]) -> None:
    reader = hiredis.Reader()
    for piece in pieces:
        reader.feed(piece)
        while reader.gets() is not False:
            pass


def compare(args: argparse.Namespace) -> list[Result]:
    made = []
    for name, reply in KINDS.items():
        data = reply * REPLIES
        assert ReplyScanner().feed(data) == REPLIES
        pieces = [data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)]
        runs = {
            "fastresp": repeated(lambda pieces=pieces: scan(pieces), REPLIES),
            "hiredis": repeated(lambda pieces=pieces: parse(pieces), REPLIES),
        }
        made += measure(entries("replies", runs, prefix=f"{name} "), args.rounds)
    return made


if __name__ == "__main__":
    run_script(__doc__, compare, 50, 10)
