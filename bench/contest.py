"""Contests of ``peers.py``: clients whose packages may be missing, each with its version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
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
        row: its name.
        package: the package whose version is recorded.
        load: returns a function that loads some data into a server, or raises ImportError; None
            if there is no load.
        missing: the reason why there is no load.
    """

    row: str
    package: str
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


def note_versions(results: Sequence[Result], peers: Sequence[Peer]) -> list[Result]:
    """Add the version of the peer's package to each value."""
    packages = {peer.row: peer.package for peer in peers}
    for result in results:
        try:
            known = version(packages[result.row])
        except (PackageNotFoundError, ValueError):
            known = "unknown"
        for details in result.details:
            details["version"] = known
    return [*results]


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
