"""Encoders that take turns: all produce the same bytes, and a value is the time per command."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from results import Result
from turns import Contender, entries, measure, repeated

# Makes pieces of RESP, or lists of pieces.
Encoder: TypeAlias = Callable[[], Iterable[Any]]
CHECKED = 1_000


def digest(encode: Encoder) -> str:
    made = hashlib.sha256()
    for pieces in encode():
        for piece in pieces if isinstance(pieces, list) else [pieces]:
            made.update(piece.encode() if isinstance(piece, str) else piece)
    return made.hexdigest()


def measure_encoders(
    table: str, kind: str, encoders: Callable[[int], Mapping[str, Encoder]], count: int, rounds: int
) -> list[Result]:
    """Check that encoders make the same bytes, and time them in turn.

    Args:
        table: the table of the rows.
        kind: the start of the rows' names.
        encoders: returns the encoders, by name, for a number of commands.
        count: number of commands.
    """
    digests = {name: digest(encode) for name, encode in encoders(CHECKED).items()}
    first, *others = digests
    if different := [name for name in others if digests[name] != digests[first]]:
        raise SystemExit(f"{kind}: other bytes than {first}: {', '.join(different)}")

    def work(encode: Encoder) -> Contender:
        return repeated(lambda: deque(encode(), maxlen=0), count)

    runs = {name: work(encode) for name, encode in encoders(count).items()}
    return measure(entries(table, runs, prefix=f"{kind} "), rounds)
