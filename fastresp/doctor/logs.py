"""A server's logs of the last day: slow commands and latency spikes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .questions import Questions, text_of

__all__ = ["SCRATCH", "Slow", "latency_spikes", "new_entries", "slow_commands"]

# Prefix of all keys of the doctor.
SCRATCH = "fastresp:doctor:"
# Older entries are ignored.
AGE_S = 24 * 3600
# Commands that read the server's state, as the doctor does. If such a command is slow, the cause is
# the machine.
QUESTIONS = frozenset((
    "ACL", "AUTH", "CLIENT", "COMMAND", "CONFIG", "ECHO", "EXEC", "HELLO", "INFO", "LATENCY",
    "MEMORY", "MULTI", "PING", "PSYNC", "REPLCONF", "SELECT", "SLOWLOG", "SYNC",
))  # fmt: skip
# Commands of constant cost without the flag "fast". Servers before 7.0 do not report a command's
# complexity.
CONSTANT = frozenset(("SET", "SETEX", "PSETEX", "GETSET", "APPEND", "UNLINK"))


@dataclass(frozen=True)
class Slow:
    """A summary of one command's entries in the slow log.

    Attributes:
        name: name of the command, without its arguments, which may be private.
        times: number of entries.
        longest_ms: duration of the longest entry, in milliseconds.
        total_ms: total duration of all entries, in milliseconds.
        complexity: the complexity from COMMAND DOCS, such as ``O(N)``; empty if unknown.
        client: the name or address of the client with the longest entry.
    """

    name: str
    times: int
    longest_ms: float
    total_ms: float
    complexity: str
    client: str


def new_entries(log: Sequence[Any], after: int) -> list[Any]:
    """Return the entries of a slow log that are newer than the entry with this ID."""
    return [entry for entry in log if int(entry[0]) > after]


def slow_commands(questions: Questions, log: Sequence[Any], now: float) -> list[Slow]:
    """Summarise the last day of a slow log by command.

    Commands of constant or logarithmic cost are omitted.
    """
    found: dict[str, list[Any]] = defaultdict(list)
    for entry in log:
        name, *arguments = [text_of(each) for each in entry[3]]
        own = any(argument.startswith(SCRATCH) for argument in arguments[:2])
        if not own and name.upper() not in QUESTIONS and now - entry[1] < AGE_S:
            found[name.upper()].append(entry)
    rows = []
    for name, entries in found.items():
        constant, complexity = _cost(questions, name)
        if constant:
            continue
        worst = max(entries, key=lambda entry: entry[2])
        client = next((text_of(each) for each in worst[5:3:-1] if each), "")  # name, then address
        total = sum(entry[2] for entry in entries) / 1000
        rows.append(Slow(name, len(entries), worst[2] / 1000, total, complexity, client))
    return sorted(rows, key=lambda row: -row.total_ms)


def _cost(questions: Questions, name: str) -> tuple[bool, str]:
    """Return True if a command's cost is at most logarithmic, and the reported complexity."""
    if name in CONSTANT:
        return True, ""
    known = dict(questions.unread)
    docs = questions.ask("COMMAND", "DOCS", name)  # server 7.0 and later
    described = _pairs(_pairs(docs).get(name.lower()))
    # Text after a comma states assumptions.
    complexity = str(described.get("complexity", "")).partition(",")[0].rstrip(".")
    if complexity:
        return complexity.startswith(("O(1)", "O(log")), complexity
    info = questions.ask("COMMAND", "INFO", name)
    questions.unread = known if info else questions.unread
    flags = {text_of(each) for each in info[0][2]} if info and info[0] else set()
    return "fast" in flags, ""


def _pairs(reply: Any) -> dict[str, Any]:
    """Convert a flat RESP2 list of names and values to a dict; empty for any other reply."""
    if not isinstance(reply, list):
        return {}
    values = [each if isinstance(each, list | int) else text_of(each) for each in reply]
    return {str(name): value for name, value in zip(values[::2], values[1::2], strict=False)}


def latency_spikes(questions: Questions, now: float) -> dict[str, float]:
    """Return the longest latency spike of each event in the last day, in milliseconds.

    A server keeps only the last 160 spikes of each event, so earlier spikes may be missing.
    """
    found = {}
    for event in questions.ask("LATENCY", "LATEST") or []:
        if now - event[1] < AGE_S:
            history = questions.ask("LATENCY", "HISTORY", text_of(event[0])) or [event[1:3]]
            found[text_of(event[0])] = float(max(ms for at, ms in history if now - at < AGE_S))
    return found
