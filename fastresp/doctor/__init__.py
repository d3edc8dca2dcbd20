"""The doctor: find what limits a server's throughput, and what to change first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from ..outcome.errors import FastrespError, TransportError
from ..outcome.excerpts import shortened
from ..server.settings import Server, ServerLike
from .client_rules import CLIENT_RULES
from .facts import Facts, read_facts
from .findings import Findings
from .measure import (
    PLAN,
    Announce,
    Measured,
    measure,
)
from .questions import Questions
from .server_rules import SERVER_RULES
from .verdict import (
    Grade,
    Verdict,
    in_order,
    worst,
)
from .watch import Use, use_since_start, watch_server

__all__ = [
    "Announce", "PLAN", "WATCH_PLAN", "Diagnosis", "Measured", "Use", "Verdict", "diagnose",
    "doctor", "watch",
]  # fmt: skip

WATCH_PLAN = """\
The doctor only watches. It opens one connection, and one to the unix socket of
a server on this machine. Both start as redis-py's do: AUTH, SELECT and CLIENT
SETINFO, depending on your server and settings.
It times PING, at most 20 times. It sends ECHO, CLIENT ID, CONFIG GET, LATENCY
LATEST, LATENCY HISTORY and COMMAND DOCS or COMMAND INFO, and INFO, CLIENT LIST
and SLOWLOG GET at the start and at the end. It writes nothing and changes
nothing."""


@dataclass(frozen=True)
class Diagnosis:
    """What the doctor found.

    Attributes:
        facts: the server's settings and state, as it reported them.
        measured: the measurements; None if the server was only watched.
        use: how clients used the server, since it started or while it was watched; None if it
            refuses INFO.
        verdicts: the findings, largest gain first, notes last.
    """

    facts: Facts
    measured: Measured | None
    use: Use | None
    verdicts: Sequence[Verdict]

    @property
    def worst(self) -> Grade | None:
        """The worst grade of the verdicts."""
        return worst(self.verdicts)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as fields for JSON, without passwords or data of the server."""
        facts = self.facts
        return {
            "server": facts.place,
            "product": facts.product,
            "version": facts.version or None,
            "way": facts.way,
            "local": facts.local,
            "hiredis": facts.hiredis,
            "worst": self.worst,
            "verdicts": [asdict(verdict) for verdict in self.verdicts],
            "measured": None if self.measured is None else asdict(self.measured),
            "use": None if self.use is None else _use_fields(self.use),
            "slow_commands": [asdict(row) for row in facts.slow],
            "not_told": dict(facts.unread),
        }


def doctor(server: ServerLike = None, announce: Announce = lambda text: None) -> Diagnosis:
    """Measure a server with harmless commands on the doctor's own keys, and find what limits it.

    Takes 1 to 5 seconds. PLAN lists every command that it sends.

    Args:
        server: as for ``mass_insert``.
        announce: called with the name of each step as it starts.

    Raises:
        TransportError: the server can't be used, or the connection was lost.
    """
    where = Server(server, reading=True)
    with _understanding(where):
        with _questions(where) as questions:
            announce("reading")
            info = questions.info()
            facts = read_facts(where, questions, info, questions.slow_log())
        # The connection for questions is closed by now: only those that measure are open.
        measured = measure(server, where, facts, announce)
        use = use_since_start(info) if "total_commands_processed" in info else None
        return diagnose(Findings(facts, measured, use))


def watch(
    server: ServerLike = None, seconds: float = 10.0, announce: Announce = lambda text: None
) -> Diagnosis:
    """Watch a server in use, without writing or changing anything, and find what limits it.

    Args:
        server: as for ``mass_insert``.
        seconds: how long to watch.
        announce: called with the progress, as text.

    Raises:
        ValueError: ``seconds`` is not a finite number above 0.
        TransportError: the server can't be used, refuses INFO, or the connection was lost.
    """
    if not (seconds > 0 and math.isfinite(seconds)):
        raise ValueError(f"seconds must be a finite number above 0, not {seconds}")
    where = Server(server, reading=True)
    with _understanding(where):
        with _questions(where) as questions:
            facts, use = watch_server(where, questions, seconds, announce)
        return diagnose(Findings(facts, None, use))


def diagnose(findings: Findings) -> Diagnosis:
    """Apply all rules to the findings."""
    found = (rule(findings) for rule in (*CLIENT_RULES, *SERVER_RULES))
    verdicts = in_order(verdict for verdict in found if verdict is not None)
    return Diagnosis(findings.facts, findings.measured, findings.use, verdicts)


@contextmanager
def _understanding(server: Server) -> Iterator[None]:
    """Raise a TransportError when a reply of the server can't be parsed.

    Raises:
        TransportError: a reply can't be parsed.
    """
    try:
        yield
    except FastrespError:
        raise
    except (
        ValueError, TypeError, LookupError, AttributeError, ArithmeticError,
        RecursionError, MemoryError,
    ) as error:  # fmt: skip
        words = shortened(f"{type(error).__name__}: {error}")
        raise TransportError(
            f"the server at {server} sent a reply that the doctor can't parse ({words}; check that "
            "it is Redis or Valkey, and that no proxy changes its replies)"
        ) from error


@contextmanager
def _questions(server: Server) -> Iterator[Questions]:
    connection, _ = server.open(None)
    try:
        yield Questions(server, connection)
    finally:
        connection.disconnect()


def _use_fields(use: Use) -> dict[str, Any]:
    calls = sorted(use.calls.items(), key=lambda item: -item[1][0])
    return asdict(use) | {
        "calls": {name: {"calls": count, "usec": usec} for name, (count, usec) in calls},
        "commands_per_read": use.commands_per_read,
        "commands_per_connection": use.commands_per_connection,
        "bytes_per_command": use.bytes_per_command,
        "error_share": use.error_share,
    }
