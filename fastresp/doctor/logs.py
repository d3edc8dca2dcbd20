"""What a server's logs tell of the last day: slow commands, and spikes of latency."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .questions import Questions, text_of

__all__ = ["SCRATCH", "Slow", "latency_spikes", "new_entries", "slow_commands"]

# All keys of the doctor begin so.
SCRATCH = "fastresp:doctor:"
# What is older says nothing of today.
AGE_S = 24 * 3600
# Questions, the doctor's own among them: what makes them slow is the machine.
QUESTIONS = frozenset((
    "ACL", "AUTH", "CLIENT", "COMMAND", "CONFIG", "ECHO", "EXEC", "HELLO", "INFO", "LATENCY",
    "MEMORY", "MULTI", "PING", "PSYNC", "REPLCONF", "SELECT", "SLOWLOG", "SYNC",
))  # fmt: skip
# Of a constant cost, though no flag says so and servers before 7.0 do not tell.
CONSTANT = frozenset(("SET", "SETEX", "PSETEX", "GETSET", "APPEND", "UNLINK"))


@dataclass(frozen=True)
class Slow:
    """The entries of one command in the slow log.

    Attributes:
        name: of the command; its arguments are nobody's business.
        times: how many entries there are.
        longest_ms: of them.
        total_ms: of all.
        complexity: as the server's COMMAND DOCS says; empty where it does not.
        client: who sent the longest: its name, or its address.
    """

    name: str
    times: int
    longest_ms: float
    total_ms: float
    complexity: str
    client: str


def new_entries(log: Sequence[Any], after: int) -> list[Any]:
    """The entries of a slow log behind the one of this id."""
    return [entry for entry in log if int(entry[0]) > after]


def slow_commands(questions: Questions, log: Sequence[Any], now: float) -> list[Slow]:
    """Sum up a slow log: a day of it, by command, without those of a constant cost."""
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
    """Whether a command's cost does not grow with the data; and what the server says of it."""
    if name in CONSTANT:
        return True, ""
    known = dict(questions.unread)
    docs = questions.ask("COMMAND", "DOCS", name)  # from 7.0 on
    described = _pairs(_pairs(docs).get(name.lower()))
    # What follows a comma are its assumptions.
    complexity = str(described.get("complexity", "")).partition(",")[0].rstrip(".")
    if complexity:
        return complexity.startswith(("O(1)", "O(log")), complexity
    info = questions.ask("COMMAND", "INFO", name)
    questions.unread = known if info else questions.unread
    flags = {text_of(each) for each in info[0][2]} if info and info[0] else set()
    return "fast" in flags, ""


def _pairs(reply: Any) -> dict[str, Any]:
    """A flat list of names and values, as RESP2 has it, as a dict."""
    if not isinstance(reply, list):
        return {}
    values = [each if isinstance(each, list | int) else text_of(each) for each in reply]
    return {str(name): value for name, value in zip(values[::2], values[1::2], strict=False)}


def latency_spikes(questions: Questions, now: float) -> dict[str, float]:
    """The longest spike of each event in the last day, in milliseconds.

    The server keeps the last 160 of each, and the longest since it started, however old that is.
    """
    found = {}
    for event in questions.ask("LATENCY", "LATEST") or []:
        if now - event[1] < AGE_S:
            history = questions.ask("LATENCY", "HISTORY", text_of(event[0])) or [event[1:3]]
            found[text_of(event[0])] = float(max(ms for at, ms in history if now - at < AGE_S))
    return found
