"""The doctor: find what limits a server's throughput, and recommend changes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from ..outcome.errors import TransportError
from ..outcome.tracebacks import public
from ..server.settings import Server, ServerLike, one_server
from ..server.threads import in_parallel
from .cluster import (
    CLUSTER_RULES,
    NODE_TIMEOUT_S,
    Cluster,
    Primary,
    grouped,
    open_slots,
    read_cluster,
)
from .connections import StateReader, explain_parse_errors
from .facts import Facts, read_facts
from .measure import PLAN, Announce, Measured, measure
from .rules import CLIENT_RULES, GRADES, Findings, Grade, Verdict, in_order
from .server_rules import SERVER_RULES
from .watch import Use, Watcher, use_since_start, wait

__all__ = [
    "Announce", "CLUSTER_PLAN", "PLAN", "WATCH_CLUSTER_PLAN", "WATCH_PLAN", "Cluster",
    "Diagnosis", "Measured", "Use", "Verdict", "diagnose", "doctor", "watch",
]  # fmt: skip

# After this many seconds, no further node is measured.
MEASURING_S = 20.0

T = TypeVar("T")
Examined: TypeAlias = tuple[Cluster, Mapping[str, Findings]]

WATCH_PLAN = """\
The doctor only watches. It opens one connection, and one to the unix socket of
a server on this machine. Both start as redis-py's do: AUTH, SELECT and CLIENT
SETINFO, depending on your server and settings.
It times PING, at most 20 times. It sends CLIENT ID, CONFIG GET, LATENCY
LATEST, LATENCY HISTORY and COMMAND DOCS or COMMAND INFO, and INFO, CLIENT LIST
and SLOWLOG GET at the start and at the end. It writes nothing and changes
nothing."""
CLUSTER_PLAN = f"""\
On a cluster it measures the primaries one by one for about {MEASURING_S:.0f} seconds; of the
remaining ones it only reads the state, up to eight at a time. It also sends
CLUSTER SLOTS and CLUSTER NODES."""
WATCH_CLUSTER_PLAN = """\
On a cluster it watches all primaries at the same time, and also sends CLUSTER
SLOTS and CLUSTER NODES."""


@dataclass(frozen=True)
class Diagnosis:
    """The doctor's results.

    Attributes:
        facts: the settings and state that the server reported. In a cluster, the facts about the
            node that was passed.
        measured: the measurements; None if the server was only watched, or is a cluster.
        use: how clients used the server, since it started or while it was watched; None if the
            server refuses INFO, or is a cluster.
        verdicts: the findings, largest gain first, notes last. In a cluster, they name the nodes.
        cluster: the slots and the unusable nodes of a cluster; None for a single server.
        nodes: the Diagnosis of each primary in a cluster, by host and port.
    """

    facts: Facts
    measured: Measured | None
    use: Use | None
    verdicts: Sequence[Verdict]
    cluster: Cluster | None = None
    nodes: Mapping[str, Diagnosis] = field(default_factory=dict)

    @property
    def worst(self) -> Grade | None:
        """The worst grade of the verdicts; None if there are no verdicts."""
        return min((each.grade for each in self.verdicts), key=GRADES.index, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON, without passwords or data of the server."""
        fields = self._fields()
        primaries = [] if self.cluster is None else self.cluster.primaries
        return fields | {
            "worst": self.worst,
            "verdicts": [asdict(verdict) for verdict in self.verdicts],
            "nodes": [
                {"slots": len(primary.slots), "replicas": primary.replicas}
                | self.nodes[primary.place]._fields()
                for primary in primaries
                if primary.place in self.nodes
            ],
        }

    def _fields(self) -> dict[str, Any]:
        """Return the fields that servers and nodes share, for JSON."""
        facts = self.facts
        return {
            "server": facts.place,
            "product": facts.product,
            "version": facts.version or None,
            "way": facts.way,
            "local": facts.local,
            "hiredis": facts.hiredis,
            "measured": None if self.measured is None else asdict(self.measured),
            "use": None if self.use is None else _use_fields(self.use),
            "slow_commands": [asdict(row) for row in facts.slow],
            "not_told": dict(facts.unread),
        }


@public
def doctor(server: ServerLike = None, announce: Announce = lambda text: None) -> Diagnosis:
    """Measure a server with harmless commands on the doctor's own keys; find what limits its speed.

    Takes 1 to 5 seconds, or up to 25 seconds for a cluster. PLAN lists all commands that the doctor
    sends; CLUSTER_PLAN adds the commands for a cluster.

    Args:
        server: as for ``mass_insert``. All primaries of a cluster are examined.
        announce: called with the name of each step as it starts.

    Raises:
        TransportError: the server can't be used, or the connection was lost.
    """
    where = one_server(server, reading=True)
    with explain_parse_errors(where):
        with _reader(where) as reader:
            announce("reading")
            info = reader.info()
            facts = read_facts(where, reader, info, reader.slow_log())
            cluster = read_cluster(where, reader, info)
        # The reader's connection is closed now, so that only measuring connections are open.
        if cluster is not None:
            return _diagnose_all(facts, examine(cluster, announce))
        return diagnose(Findings(facts, measure(where, facts, announce), use_since_start(info)))


@public
def watch(
    server: ServerLike = None, seconds: float = 10.0, announce: Announce = lambda text: None
) -> Diagnosis:
    """Watch how clients use a server, without changing anything; find what limits its throughput.

    Args:
        server: as for ``mass_insert``. All primaries of a cluster are watched.
        seconds: how long to watch.
        announce: called with the remaining time, as text.

    Raises:
        ValueError: ``seconds`` is not a finite number above 0.
        FastrespError: the server's counters were reset during the watch.
        TransportError: the server can't be used, refuses INFO or was restarted, or the connection
            was lost.
    """
    if not (seconds > 0 and math.isfinite(seconds)):
        raise ValueError(f"seconds must be a finite number above 0, not {seconds}")
    where = one_server(server, reading=True)
    with explain_parse_errors(where), _reader(where) as reader:
        info = reader.info()
        cluster = read_cluster(where, reader, info)
        if cluster is None:
            watcher = Watcher(where, reader)
            watcher.begin()
            wait([watcher], seconds, announce)
            facts, use = watcher.end()
            return diagnose(Findings(facts, None, use))
        facts = read_facts(where, reader, info, ())
        return _diagnose_all(facts, watch_all(cluster, seconds, announce))


def diagnose(findings: Findings) -> Diagnosis:
    """Apply all rules to the findings."""
    found = (rule(findings) for rule in (*CLIENT_RULES, *SERVER_RULES))
    verdicts = in_order(verdict for verdict in found if verdict is not None)
    return Diagnosis(findings.facts, findings.measured, findings.use, verdicts)


def _diagnose_all(facts: Facts, examined: Examined) -> Diagnosis:
    """Apply all rules to the findings about a cluster and its nodes."""
    cluster, findings = examined
    nodes = {place: diagnose(each) for place, each in findings.items()}
    whole = (rule(cluster, findings) for rule in CLUSTER_RULES)
    verdicts = [verdict for verdict in whole if verdict is not None]
    verdicts += grouped({place: each.verdicts for place, each in nodes.items()})
    return Diagnosis(facts, None, None, in_order(verdicts), cluster, nodes)


def _reader(server: Server) -> StateReader:
    connection, _ = server.open(None)
    return StateReader(server, connection)


def _use_fields(use: Use) -> dict[str, Any]:
    calls = sorted(use.calls.items(), key=lambda item: -item[1][0])
    return asdict(use) | {
        "calls": {name: {"calls": count, "usec": usec} for name, (count, usec) in calls},
        "commands_per_read": use.commands_per_read,
        "commands_per_connection": use.commands_per_connection,
        "bytes_per_command": use.bytes_per_command,
        "error_share": use.error_share,
    }


def examine(cluster: Cluster, announce: Announce) -> Examined:
    """Read the state of all primaries, and measure as many as time allows.

    Returns:
        (cluster, findings): the cluster with its unreachable nodes; and the findings about each
        reachable node.
    """
    announce("reading")
    cluster, states = _of_all(cluster, _read)
    end = time.monotonic() + MEASURING_S
    found = {}
    for primary, state in states.items():
        if time.monotonic() < end:

            def announced(text: str, place: str = primary.place) -> None:
                announce(f"{place}: {text}")

            with explain_parse_errors(primary.server):
                measured = measure(primary.server, state.facts, announced, primary.slots)
            state = replace(state, measured=measured)
        found[primary.place] = state
    return cluster, found


def watch_all(cluster: Cluster, seconds: float, announce: Announce) -> Examined:
    """Watch all primaries at the same time; the results are as for ``examine()``."""

    def begin(primary: Primary) -> tuple[Watcher, Sequence[int]]:
        reader = opened.enter_context(_node_reader(primary))
        with explain_parse_errors(primary.server):
            moving = open_slots(reader)
            watcher = Watcher(primary.server, reader)
            watcher.begin()
        return watcher, moving

    def end(primary: Primary) -> Findings:
        watcher, moving = watched[primary]
        with explain_parse_errors(primary.server):
            facts, use = watcher.end()
        return _of_node(facts, use, moving)

    with ExitStack() as opened:
        announce("reading")
        cluster, watched = _of_all(cluster, begin)
        wait([watcher for watcher, _ in watched.values()], seconds, announce)
        ended = in_parallel(list(watched), end)
    found = {}
    for primary, result in zip(watched, ended, strict=True):
        if isinstance(result, TransportError):
            raise result
        found[primary.place] = result
    return cluster, found


def _of_all(cluster: Cluster, function: Callable[[Primary], T]) -> tuple[Cluster, dict[Primary, T]]:
    """Call a function for all primaries in parallel.

    Returns:
        (cluster, results): the cluster, whose ``unreachable`` has the primaries for which the call
        raised TransportError; and the results for the other primaries.
    """
    results = in_parallel(cluster.primaries, function)
    good: dict[Primary, T] = {}
    bad: dict[str, str] = {}
    for primary, result in zip(cluster.primaries, results, strict=True):
        if isinstance(result, TransportError):
            bad[primary.place] = str(result)
        else:
            good[primary] = result
    return replace(cluster, unreachable=bad), good


def _read(primary: Primary) -> Findings:
    with _node_reader(primary) as reader, explain_parse_errors(primary.server):
        info = reader.info()
        moving = open_slots(reader)
        facts = read_facts(primary.server, reader, info, reader.slow_log())
        return _of_node(facts, use_since_start(info), moving)


def _of_node(facts: Facts, use: Use | None, moving: Sequence[int]) -> Findings:
    # No unix socket is recommended, since clients of a cluster can't use it.
    return Findings(replace(facts, unix_socket="", moving=moving), None, use)


def _node_reader(primary: Primary) -> StateReader:
    return StateReader(primary.server, primary.server.connect(NODE_TIMEOUT_S))
