"""What a load would do, found out without sending a command that changes anything."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..encode.template import Template
from ..outcome.errors import CommandError, FastrespError, TransportError
from ..outcome.excerpts import shown_argument
from ..outcome.messages import message_with_file
from ..outcome.passwords import redacted
from ..outcome.report import size_text
from ..replies.iter_replies import iter_replies
from ..resp.buffer import Chunk
from ..resp.shown import HEAD_BYTES, shown_command
from ..resp.split import arguments
from ..resp.values import pack
from ..server.answers import parse_info
from ..server.options import Options
from ..server.settings import Server, ServerLike
from ..sources.source import Encoder, encoding, naming_file, released
from .command_info import CommandInfo, command_info
from .memory_estimate import LIMITS, Estimate, Model
from .progress import fraction_read, known_rows

__all__ = ["DryRun", "Inquiry", "Sample", "dry_run", "take_sample"]

SAMPLE_ROWS = 1_000
# Fewer rows, where they are as large as this together: they are all held.
SAMPLE_BYTES = 16 << 20
# How long rows are counted where the source does not know how many there are.
COUNT_SECONDS = 0.5
COMMANDS_SHOWN = 5
KEYS_SHOWN = 3
# A larger command is not sent to ACL DRYRUN: its answer is not worth that.
DRYRUN_BYTES = 1 << 16
# The type of key that commands of an ACL category work on. Source: server.c of Redis 7.0.
TYPES = {
    "@string": "string",
    "@bitmap": "string",
    "@hyperloglog": "string",
    "@hash": "hash",
    "@list": "list",
    "@set": "set",
    "@sortedset": "zset",
    "@geo": "zset",
    "@stream": "stream",
}
# They put a value of their own in the place of any other, or leave a key alone that is there.
ANY_TYPE = frozenset(("SET", "SETEX", "PSETEX", "SETNX", "MSET", "MSETNX", "MGET", "BITOP"))


@dataclass
class Sample:
    """The first commands of a source.

    Attributes:
        rows: how many rows they came from.
        whole: whether that is all of the source.
        total_rows: how many rows the source has, about; None where that can't be known.
        commands: the arguments of each.
        size: bytes of RESP.
        shown: the first of them, as redis-cli would show them.
        fault: what was wrong with a row behind the sample; empty where nothing was found.
    """

    rows: int = 0
    whole: bool = False
    total_rows: int | None = None
    commands: list[tuple[bytes, ...]] = field(default_factory=list)
    size: int = 0
    shown: list[str] = field(default_factory=list)
    fault: str = ""

    @property
    def times(self) -> float | None:
        """How many times the sample the source is; None where that can't be known."""
        if self.whole or not self.rows:
            return 1.0
        return None if self.total_rows is None else self.total_rows / self.rows


@dataclass
class Inquiry:
    """What the server says of the sample.

    Attributes:
        unreachable: why it could not be asked; empty when it was.
        used_memory, maxmemory: bytes; None where it does not tell. A maxmemory of 0 is no limit.
        policy: what it does when that is full.
        limits: of the compact forms: see estimate.LIMITS.
        user: who the load would be; None where it does not tell.
        allowed: whether the ACL lets that user run the commands; None where it does not tell.
        refused: the ACL's words about those that it does not.
        unknown: names of commands that it does not have.
        wrong_arity: commands with too many or too few arguments, as they are shown.
        wrong_types: keys that hold something else than the command expects.
        checked_keys: how many keys were looked at.
        rehearsed: why it would take no row of a command of the template; empty where it may.
    """

    unreachable: str = ""
    used_memory: int | None = None
    maxmemory: int | None = None
    policy: str | None = None
    limits: dict[str, int] = field(default_factory=lambda: dict(LIMITS))
    user: str | None = None
    allowed: bool | None = None
    refused: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    wrong_arity: list[str] = field(default_factory=list)
    wrong_types: list[str] = field(default_factory=list)
    checked_keys: int = 0
    rehearsed: str = ""


@dataclass
class DryRun:
    """What a load would do.

    Attributes:
        sample: its first commands.
        inquiry: what the server says of them.
        estimate: the memory that the whole load takes; of the sample alone where nobody knows how
            long the source is.
        problems: what was found wrong, a sentence each.
    """

    sample: Sample
    inquiry: Inquiry
    estimate: Estimate
    problems: list[str]

    @property
    def rights_unknown(self) -> bool:
        """Whether the server was asked, and did not say whether its ACL allows the commands."""
        asked = not self.inquiry.unreachable and bool(self.sample.commands)
        return asked and self.inquiry.allowed is None

    @property
    def commands(self) -> int | None:
        """How many commands there are, about; None where that can't be known."""
        times = self.sample.times
        return None if times is None else round(len(self.sample.commands) * times)

    @property
    def size(self) -> int | None:
        """How many bytes go to the server, about; None where that can't be known."""
        times = self.sample.times
        return None if times is None else round(self.sample.size * times)


def dry_run(
    data: Any,
    template: Template | None,
    server: ServerLike = None,
    *,
    nulls: Literal["error", "skip", "empty"] = "error",
    timeout: float | None = 30.0,
) -> DryRun:
    """Encode the first 1,000 rows, and ask the server about them. Nothing is changed there.

    Args:
        data, template, server, nulls, timeout: as for ``mass_insert``. Rows are taken from the
            source.

    Raises:
        EncodeError, TemplateError: a row of the sample can't be encoded.
    """
    sample = take_sample(data, template, nulls=nulls)
    try:
        inquiry = inquire(sample, server, timeout=timeout)
    except TransportError as error:
        inquiry = Inquiry(unreachable=error.args[0])
    else:
        inquiry.rehearsed = _rehearsed(template, server, timeout)
    estimate = Model(inquiry.limits).run(sample.commands, sample.times or 1.0)
    return DryRun(sample, inquiry, estimate, _problems(sample, inquiry, estimate))


def take_sample(
    data: Any, template: Template | None, *, nulls: Literal["error", "skip", "empty"] = "error"
) -> Sample:
    """Encode the first rows of a source."""
    encoder, source = encoding(data, template, Options(nulls=nulls))
    sample = Sample(whole=True, total_rows=known_rows(data))
    with released(source), naming_file(data):
        chunks = encoder.chunks(source)
        for chunk in chunks:
            _take_chunk(chunk, sample)
            if sample.whole and encoder.rows > SAMPLE_ROWS:
                sample.whole, sample.rows = False, SAMPLE_ROWS  # rows that made no command
            if not sample.whole:
                break
        if sample.whole:
            sample.rows = sample.total_rows = encoder.rows
        elif sample.total_rows is None and fraction_read(data) is not None:
            try:
                with naming_file(data):
                    sample.total_rows = _count_on(chunks, encoder, data)
            except FastrespError as error:
                sample.fault = message_with_file(error)
    return sample


def _count_on(chunks: Iterable[Chunk], encoder: Encoder, data: Any) -> int | None:
    """Go on for a moment to count rows, and work out from the rate how many there are in all.

    Where lines tell it they do. What a source has read is ahead of what it has given, by 15 MB in
    CSV as soon as that is full; so it is what it reads between two later moments that is compared
    with the rows between them.
    """
    begin = time.monotonic() + COUNT_SECONDS / 2
    deadline = begin + COUNT_SECONDS
    rows, part = 0, None
    for _ in chunks:
        now = time.monotonic()
        if part is None and now >= begin:
            rows, part = encoder.rows, fraction_read(data) or 0.0
        if part is not None and now >= deadline:
            about: int | None = data.rows_about() if hasattr(data, "rows_about") else None
            if about is not None:
                return max(about, encoder.rows)
            more = (fraction_read(data) or 0.0) - part
            return round((encoder.rows - rows) / more) if more > 0 else None
    return encoder.rows


def _take_chunk(chunk: Chunk, sample: Sample) -> None:
    """Take the commands of a chunk, until the sample is large enough."""
    for index, row in enumerate(chunk.rows):
        if row >= SAMPLE_ROWS or sample.size >= SAMPLE_BYTES:
            sample.whole, sample.rows = False, row
            return
        _take(chunk, index, sample)


def _take(chunk: Chunk, index: int, sample: Sample) -> None:
    start = chunk.ends[index - 1] if index else 0
    pieces = []
    while start < chunk.ends[index]:
        pieces.append(chunk.piece(start, chunk.ends[index]))
        start += len(pieces[-1])
    command = b"".join(pieces)
    sample.size += len(command)
    sample.commands.append(arguments(command))
    if len(sample.shown) < COMMANDS_SHOWN:
        sample.shown.append(shown_command(command[:HEAD_BYTES]))


def inquire(sample: Sample, server: ServerLike, *, timeout: float | None) -> Inquiry:
    """Ask a server about a sample, in questions that change nothing.

    Raises:
        TransportError: it can't be used.
    """
    inquiry = Inquiry()
    names = list(dict.fromkeys(_name(command) for command in sample.commands))
    questions: list[Sequence[bytes | str]] = [("INFO", "memory"), ("ACL", "WHOAMI")]
    questions += [("CONFIG", "GET", limit) for limit in LIMITS]
    memory, user, *limits = _ask(questions, server, timeout)
    if isinstance(memory, str):
        fields = parse_info(memory)
        inquiry.used_memory = _number(fields.get("used_memory"))
        inquiry.maxmemory = _number(fields.get("maxmemory"))
        inquiry.policy = fields.get("maxmemory_policy")
    inquiry.user = user if isinstance(user, str) else None
    for limit, reply in zip(LIMITS, limits, strict=True):
        most = _number(reply[1]) if isinstance(reply, list) and len(reply) == 2 else None
        if most is not None:
            inquiry.limits[limit] = most
    known = command_info(names, server, timeout=timeout)
    if known is not None:
        inquiry.unknown = [name for name in names if known[name] is None]
        _look_at_arity(sample, known, inquiry)
        _look_at_types(sample, known, inquiry, server, timeout)
    if inquiry.user is not None:
        _look_at_rights(sample, inquiry, server, timeout)
    return inquiry


def _number(text: Any) -> int | None:
    """A number that a server tells; None where it is none."""
    try:
        return int(text)
    except (TypeError, ValueError):
        return None


def _rehearsed(template: Template | None, server: ServerLike, timeout: float | None) -> str:
    """Find out, without any right of its own, whether the server takes the template's commands."""
    where = Server(server, template=template)
    try:
        if where.rehearsal:
            where.ask(timeout)
    except (CommandError, TransportError) as error:
        message: str = error.args[0]
        return message
    return ""


def _look_at_arity(sample: Sample, known: dict[str, CommandInfo | None], inquiry: Inquiry) -> None:
    for command in sample.commands:
        info = known[_name(command)]
        if info is not None and not info.takes(len(command)):
            inquiry.wrong_arity.append(shown_command(pack(*command)[:HEAD_BYTES]))


def _look_at_types(
    sample: Sample,
    known: dict[str, CommandInfo | None],
    inquiry: Inquiry,
    server: ServerLike,
    timeout: float | None,
) -> None:
    expected: dict[bytes, tuple[set[str], str]] = {}
    for command in sample.commands:
        info = known[_name(command)]
        if info is None or not (types := _types(info)):
            continue
        keys = info.keys(command)
        # What is stored somewhere takes the place of whatever is there.
        for key in keys[1:] if info.name.endswith("STORE") else keys:
            expected.setdefault(key, (types, info.name))
    replies = _ask([("TYPE", key) for key in expected], server, timeout)
    for (key, (types, name)), reply in zip(expected.items(), replies, strict=True):
        inquiry.checked_keys += 1
        if isinstance(reply, str) and reply != "none" and reply not in types:
            inquiry.wrong_types.append(
                f"{shown_argument(key)} holds a {reply}, and {name} expects a {' or '.join(types)}"
            )


def _types(info: CommandInfo) -> set[str]:
    """The types of key that a command works on; none where it takes any."""
    if info.name in ANY_TYPE:
        return set()
    return {TYPES[category] for category in info.categories if category in TYPES}


def _look_at_rights(
    sample: Sample, inquiry: Inquiry, server: ServerLike, timeout: float | None
) -> None:
    """Ask the ACL, which answers since Redis 7.0, and only those who may ask."""
    user = inquiry.user or ""
    asked = [c for c in sample.commands if sum(map(len, c)) <= DRYRUN_BYTES]
    replies = _ask([("ACL", "DRYRUN", user, *redacted(c)) for c in asked], server, timeout)
    told = [reply for reply in replies if isinstance(reply, str)]
    if told:
        inquiry.refused = list(dict.fromkeys(reply for reply in told if reply != "OK"))
        inquiry.allowed = not inquiry.refused


def _ask(
    questions: Sequence[Sequence[bytes | str]], server: ServerLike, timeout: float | None
) -> list[Any]:
    """The answers, in a pipeline; a refused question is answered by None."""
    replies = iter_replies(
        questions, server=server, on_error="collect", decode=True, timeout=timeout
    )
    return [None if isinstance(reply, CommandError) else reply for reply in replies]


def _problems(sample: Sample, inquiry: Inquiry, estimate: Estimate) -> list[str]:
    """The problems that were found."""
    problems = [sample.fault] if sample.fault else []
    if inquiry.unreachable:
        problems.append(inquiry.unreachable)
    if inquiry.unknown:
        problems.append(f"the server has no command {', '.join(inquiry.unknown)}; check the name")
    if inquiry.wrong_arity:
        problems.append(
            "commands of the sample with too many or too few arguments: "
            f"{len(inquiry.wrong_arity):,}, the first: {inquiry.wrong_arity[0]}"
        )
    if inquiry.wrong_types:
        problems.append(
            "keys of the sample that are there with another type, which answers WRONGTYPE: "
            f"{len(inquiry.wrong_types):,}, such as {'; '.join(inquiry.wrong_types[:KEYS_SHOWN])}"
        )
    problems += inquiry.refused[:KEYS_SHOWN]
    if inquiry.rehearsed and not (inquiry.unknown or inquiry.wrong_arity or inquiry.refused):
        problems.append(inquiry.rehearsed)
    if inquiry.maxmemory and inquiry.used_memory is not None:
        free = inquiry.maxmemory - inquiry.used_memory
        if estimate.memory > free and not (inquiry.policy or "").startswith("allkeys"):
            problems.append(
                f"the data takes about {size_text(estimate.memory)}, and the server has "
                f"{size_text(max(free, 0))} left (maxmemory, {inquiry.policy}); raise its maxmemory"
            )
    return problems


def _name(command: Sequence[bytes]) -> str:
    return command[0].decode(errors="backslashreplace").upper()
