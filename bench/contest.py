"""Contenders of ``peers.py``: clients whose packages may be missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from results import Result
from servers import Address
from turns import Contender, Entry, NotAvailable

import fastresp

PIPELINE = 1_000
NOT_INSTALLED = "not installed: pip install 'fastresp[peers]'"


@dataclass(frozen=True)
class Peer:
    """A row of a table.

    Attributes:
        row: the name of the row.
        load: returns a function that loads some data into a server. It raises ImportError if its
            package is not installed; None if the peer can't be installed.
        missing: the reason why there is no load.
    """

    row: str
    load: Callable[[Address, Any], Contender] | None
    parser: str = ""
    missing: str = NOT_INSTALLED

    def entry(self, table: str, address: Address, data: Any, count: int) -> Entry:
        """Return the peer's row, and its load or the reason why there is none."""
        result = Result(table, self.row, self.parser, count)
        try:
            return result, self.missing if self.load is None else guarded(self.load(address, data))
        except ImportError:
            return result, self.missing


def guarded(run: Contender) -> Contender:
    """Return a contender whose failure leaves out its row, and does not end the script."""

    def guarded_run() -> object:
        try:
            return run()
        except fastresp.FastrespError:
            raise
        except Exception as error:  # each peer has its own exceptions
            words = str(error).splitlines() or [""]
            raise NotAvailable(f"it failed: {type(error).__name__}: {words[-1]:.200}") from error

    return guarded_run


def hashes_by_pipeline(address: Address, pairs: Sequence[tuple[str, dict[str, Any]]]) -> Contender:
    """Return a load of hashes with redis-py, by keys and mappings."""
    client = address.client()

    def run() -> None:
        pipeline = client.pipeline(transaction=False)
        for start in range(0, len(pairs), PIPELINE):
            for key, row in pairs[start : start + PIPELINE]:
                pipeline.hset(key, mapping=row)
            pipeline.execute()

    return run
