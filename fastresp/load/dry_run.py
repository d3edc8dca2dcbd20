"""Find out what a load would do, without changing anything on the server."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..encode.payload.creating import check_creating
from ..encode.payload.format import Format
from ..encode.payload.serializer import Serializer
from ..encode.payload.versions import format_of
from ..encode.template import Template
from ..outcome.errors import CommandError, FastrespError, TransportError
from ..outcome.excerpts import shown_argument
from ..outcome.messages import Hint, Message, message_with_file
from ..outcome.passwords import redacted
from ..outcome.report import counted, size_text
from ..replies.iter_replies import iter_replies
from ..resp.buffer import Chunk
from ..resp.merge import Merger
from ..resp.shown import HEAD_BYTES, shown_command
from ..resp.split import arguments
from ..resp.values import pack
from ..server.answers import parse_info
from ..server.options import Options
from ..server.rehearsal import RESTORE
from ..server.settings import Server, ServerLike
from ..sources.source import Encoder, encoding, naming_file, released
from .command_info import CommandInfo, command_info
from .memory_estimate import LIMITS, Estimate, Model
from .progress import fraction_read, known_rows

__all__ = ["DryRun", "Inquiry", "Sample", "dry_run", "take_sample"]

SAMPLE_ROWS = 1_000
# The sample is held in memory, so it ends earlier if it reaches this size.
SAMPLE_BYTES = 16 << 20
# How long to count rows if the source does not know its number of rows.
COUNT_SECONDS = 0.5
COMMANDS_SHOWN = 5
KEYS_SHOWN = 3
# Larger commands are not sent to ACL DRYRUN: the answer is not worth the traffic.
DRYRUN_BYTES = 1 << 16
# The key type of the commands of an ACL category. Source: server.c of Redis 7.0.
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
# These overwrite a key of any type, or leave an existing key alone.
ANY_TYPE = frozenset(("SET", "SETEX", "PSETEX", "SETNX", "MSET", "MSETNX", "MGET", "BITOP"))


@dataclass
class Sample:
    """The first commands of a source.

    Attributes:
        rows: number of rows in the sample.
        whole: whether the sample is the whole source.
        total_rows: about how many rows the source has; None if unknown.
        commands: the arguments of each command.
        size: bytes of RESP.
        shown: the first commands, as redis-cli would show them.
        fault: the error of a row after the sample, or of one that can't be serialised; empty if
            none was found.
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
        """Rows of the source / rows of the sample; None if unknown."""
        if self.whole or not self.rows:
            return 1.0
        return None if self.total_rows is None else self.total_rows / self.rows


@dataclass
class Inquiry:
    """The server's answers about the sample.

    Attributes:
        unreachable: why the server could not be asked; empty if it could.
        used_memory, maxmemory: bytes; None if the server does not say. maxmemory 0 means no limit.
        policy: the server's maxmemory-policy.
        limits: limits of the compact encodings: see memory_estimate.LIMITS.
        user: the ACL user of the load; None if unknown.
        allowed: whether the ACL allows that user to run the commands; None if unknown.
        refused: the ACL's error messages for the commands that it does not allow.
        unknown: names of commands that the server does not have.
        wrong_arity: commands with too many or too few arguments, formatted for display.
        wrong_types: a message for each key of another type than the command expects.
        existing: the keys that exist, in quotes.
        checked_keys: number of keys whose type was checked.
        rehearsed: why the server would reject every row of a template command; empty if it
            would not.
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
    existing: list[str] = field(default_factory=list)
    checked_keys: int = 0
    rehearsed: str = ""


@dataclass
class DryRun:
    """What a load would do.

    Attributes:
        sample: the first commands of the load.
        inquiry: the server's answers about them.
        estimate: the memory that the whole load needs; that of the sample alone if the number of
            rows is unknown.
        problems: the problems found, one sentence each.
    """

    sample: Sample
    inquiry: Inquiry
    estimate: Estimate
    problems: list[str]

    @property
    def rights_unknown(self) -> bool:
        """Whether the server was reached but did not say if its ACL allows the commands."""
        asked = not self.inquiry.unreachable and bool(self.sample.commands)
        return asked and self.inquiry.allowed is None

    @property
    def commands(self) -> int | None:
        """About how many commands the load has; None if unknown."""
        times = self.sample.times
        return None if times is None else round(len(self.sample.commands) * times)

    @property
    def size(self) -> int | None:
        """About how many bytes the load sends; None if unknown."""
        times = self.sample.times
        return None if times is None else round(self.sample.size * times)


def dry_run(
    data: Any,
    template: Template | None,
    server: ServerLike = None,
    *,
    nulls: Literal["error", "skip", "empty"] = "error",
    timeout: float | None = 30.0,
    mode: Literal["commands", "merge", "serialize"] = "commands",
    exists: Literal["error", "replace", "skip"] = "error",
) -> DryRun:
    """Encode the first 1,000 rows and ask the server about them, without changing anything there.

    Args:
        data, template, server, nulls, timeout, mode, exists: as for ``mass_insert``. Rows are
            consumed from the source.

    Raises:
        EncodeError, TemplateError: a row of the sample can't be encoded, or the template can't be
            serialised.
    """
    serialize = mode == "serialize"
    if serialize:
        check_creating(template)
    sample = take_sample(data, template, nulls=nulls, serialize=serialize)
    try:
        inquiry = inquire(sample, server, timeout=timeout)
    except TransportError as error:
        inquiry = Inquiry(unreachable=error.args[0])
    else:
        inquiry.rehearsed = _rehearsed(template, server, timeout, serialize)
    if serialize:  # which makes whole keys
        inquiry.wrong_types = []
    if not serialize or exists != "error":
        inquiry.existing = []
    estimate = Model(inquiry.limits).run(sample.commands, sample.times or 1.0)
    return DryRun(sample, inquiry, estimate, _problems(sample, inquiry, estimate))


def take_sample(
    data: Any,
    template: Template | None,
    *,
    nulls: Literal["error", "skip", "empty"] = "error",
    serialize: bool = False,
) -> Sample:
    """Encode the first rows of a source; with ``serialize``, check that they can be serialised."""
    encoder, source = encoding(data, template, Options(nulls=nulls))
    sample = Sample(whole=True, total_rows=known_rows(data))
    # The values are not used, so their version does not matter.
    serializer = Serializer(Format(10), most_bytes=SAMPLE_BYTES, merger=Merger(1, 1))
    with released(source), naming_file(data):
        chunks = encoder.chunks(source)
        for chunk in chunks:
            if serialize:
                serializer.serialize(chunk)
            _take_chunk(chunk, sample)
            if sample.whole and encoder.rows > SAMPLE_ROWS:
                sample.whole, sample.rows = False, SAMPLE_ROWS  # rows that made no command
            if not sample.whole:
                break
        if sample.whole:
            sample.rows = sample.total_rows = encoder.rows
        try:
            with naming_file(data):
                _check_serialized(serializer)
                if sample.total_rows is None and fraction_read(data) is not None:
                    sample.total_rows = _count_on(chunks, encoder, data)
        except FastrespError as error:
            sample.fault = message_with_file(error)
    return sample


def _check_serialized(serializer: Serializer) -> None:
    """Raise what is wrong with the commands that were serialised."""
    serializer.finish()
    if serializer.error is not None:
        raise serializer.error


def _count_on(chunks: Iterable[Chunk], encoder: Encoder, data: Any) -> int | None:
    """Count rows for COUNT_SECONDS more, and estimate the total from them.

    If the source can estimate it from the lengths of its lines, use that. Otherwise compare the
    share of the source read between two moments with the rows counted between them. Not from the
    start: a source reads ahead of the rows it yields, by 15 MB for CSV.
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
    """Add the commands of a chunk to the sample until it is large enough."""
    for index, row in enumerate(chunk.rows):
        if row >= SAMPLE_ROWS or sample.size >= SAMPLE_BYTES:
            sample.whole, sample.rows = False, row
            return
        _take(chunk, index, sample)


def _take(chunk: Chunk, index: int, sample: Sample) -> None:
    command = chunk.command(index, index)
    sample.size += len(command)
    sample.commands.append(arguments(command))
    if len(sample.shown) < COMMANDS_SHOWN:
        sample.shown.append(shown_command(command[:HEAD_BYTES]))


def inquire(sample: Sample, server: ServerLike, *, timeout: float | None) -> Inquiry:
    """Ask the server about a sample, with commands that change nothing.

    Raises:
        TransportError: the server can't be used.
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
    """Parse a number from the server; None if it is not one."""
    try:
        return int(text)
    except (TypeError, ValueError):
        return None


def _rehearsed(
    template: Template | None, server: ServerLike, timeout: float | None, serialize: bool
) -> str:
    """Check whether the server accepts the template's commands; needs no extra ACL rights."""
    where = Server(server, template=template)
    if serialize:
        where.rehearsal = [*where.rehearsal, RESTORE]
    try:
        if where.rehearsal:
            answers = where.ask(timeout)
            if serialize:
                format_of(answers.version, {}, valkey=answers.valkey)
    except (CommandError, TransportError) as error:
        message: str = error.args[0]
        return message
    return ""


def _look_at_arity(sample: Sample, known: dict[str, CommandInfo | None], inquiry: Inquiry) -> None:
    for command in sample.commands:
        info = known[_name(command)]
        if info is not None and not info.accepts(len(command)):
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
        # The destination of a STORE command is overwritten, whatever its type.
        for key in keys[1:] if info.name.endswith("STORE") else keys:
            expected.setdefault(key, (types, info.name))
    replies = _ask([("TYPE", key) for key in expected], server, timeout)
    for (key, (types, name)), reply in zip(expected.items(), replies, strict=True):
        if not isinstance(reply, str):  # no permission
            continue
        inquiry.checked_keys += 1
        if reply != "none":
            inquiry.existing.append(shown_argument(key))
        if reply != "none" and reply not in types:
            inquiry.wrong_types.append(
                f"{shown_argument(key)} holds a {reply}, and {name} expects a {' or '.join(types)}"
            )


def _types(info: CommandInfo) -> set[str]:
    """Return the key types that a command works on; empty if it accepts any."""
    if info.name in ANY_TYPE:
        return set()
    return {TYPES[category] for category in info.categories if category in TYPES}


def _look_at_rights(
    sample: Sample, inquiry: Inquiry, server: ServerLike, timeout: float | None
) -> None:
    """Ask ACL DRYRUN; servers have it since Redis 7.0, and the user needs the right to run it."""
    user = inquiry.user or ""
    asked = [c for c in sample.commands if sum(map(len, c)) <= DRYRUN_BYTES]
    replies = _ask([("ACL", "DRYRUN", user, *redacted(c)) for c in asked], server, timeout)
    answers = [reply for reply in replies if isinstance(reply, str)]
    if answers:
        inquiry.refused = list(dict.fromkeys(reply for reply in answers if reply != "OK"))
        inquiry.allowed = not inquiry.refused


def _ask(
    questions: Sequence[Sequence[bytes | str]], server: ServerLike, timeout: float | None
) -> list[Any]:
    """Send the questions in one pipeline and return the answers; None for an error reply."""
    replies = iter_replies(
        questions, server=server, on_error="collect", decode=True, timeout=timeout
    )
    return [None if isinstance(reply, CommandError) else reply for reply in replies]


def _problems(sample: Sample, inquiry: Inquiry, estimate: Estimate) -> list[str]:
    """Describe the problems found, one sentence each."""
    problems = [sample.fault] if sample.fault else []
    if inquiry.unreachable:
        problems.append(inquiry.unreachable)
    if inquiry.unknown:
        problems.append(f"the server has no command {', '.join(inquiry.unknown)}; check the name")
    if inquiry.wrong_arity:
        problems.append(
            f"{counted(len(inquiry.wrong_arity), 'command')} of the sample with too many or too "
            f"few arguments, the first: {inquiry.wrong_arity[0]}"
        )
    if inquiry.wrong_types:
        problems.append(
            f"WRONGTYPE for {counted(len(inquiry.wrong_types), 'key')} of the sample: "
            f"{'; '.join(inquiry.wrong_types[:KEYS_SHOWN])}"
        )
    if inquiry.existing:
        problems.append(
            Message(
                f"BUSYKEY for {counted(len(inquiry.existing), 'key')} of the sample: "
                f"{', '.join(inquiry.existing[:KEYS_SHOWN])}; delete what exists, or use ",
                Hint("exists", "replace"),
                " or ",
                Hint("exists", "skip"),
            )
        )
    problems += inquiry.refused[:KEYS_SHOWN]
    if inquiry.rehearsed and not (inquiry.unknown or inquiry.wrong_arity or inquiry.refused):
        problems.append(inquiry.rehearsed)
    if inquiry.maxmemory and inquiry.used_memory is not None:
        free = inquiry.maxmemory - inquiry.used_memory
        if estimate.memory > free and not (inquiry.policy or "").startswith("allkeys"):
            problems.append(
                f"the data needs about {size_text(estimate.memory)}, and the server has "
                f"{size_text(max(free, 0))} free (maxmemory, policy {inquiry.policy}); raise its "
                "maxmemory"
            )
    return problems


def _name(command: Sequence[bytes]) -> str:
    return command[0].decode(errors="backslashreplace").upper()
