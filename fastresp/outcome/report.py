"""The report of a load: counts, rates and errors; and how results are displayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

from .errors import CommandError, FastrespError
from .messages import Hint, Message, shortened, visible
from .passwords import without_passwords

__all__ = [
    "Displayed", "ERRORS_KEPT", "IndexState", "LoadErrors", "PushError", "Report", "as_html",
    "counted", "size_text",
]  # fmt: skip

# Maximum number of items of a list or dict that are shown in a table cell.
LINES_SHOWN = 10
# Maximum number of error replies that are kept with their text; all are counted.
ERRORS_KEPT = 100
KINDS_SHOWN = 5
# Maximum number of codes that are counted separately, in case a server sends endless new codes.
CODES_KEPT = 100
CODE_CHARACTERS = 40
# Maximum characters of the example error that is kept for each code.
EXAMPLE_CHARACTERS = 200
OTHER_CODES = "(other)"
# The report names a node if the load waited for that node for at least this share of wall time.
MIN_WAIT_SHARE = 0.1


class Displayed:
    """A base class for dataclasses: shows text at a prompt, and a table in a notebook."""

    def __repr__(self) -> str:
        return f"<fastresp.{type(self).__name__}: {self}>"

    def _repr_html_(self) -> str:
        kept = [each for each in fields(self) if each.repr]  # type: ignore[arg-type]
        pairs = [(each.name, getattr(self, each.name), _default(each)) for each in kept]
        title = str(self).partition("\n")[0]
        shown = ((name, value) for name, value, default in pairs if value != default)
        return as_html(type(self).__name__, title, shown)


def as_html(name: str, title: str, pairs: Iterable[tuple[str, Any]]) -> str:
    """Return a table of names and values for a notebook; all text in it is escaped."""
    from html import escape

    rows = "".join(
        f'<tr><th style="text-align:left">{escape(key)}</th>'
        f'<td style="text-align:left">{_cell(value)}</td></tr>'
        for key, value in pairs
    )
    caption = f"<b>{escape(name)}</b>{title and ': ' + escape(title)}"
    return f"<div><p>{caption}</p><table><tbody>{rows}</tbody></table></div>"


def _cell(value: Any) -> str:
    """Return a value as HTML, with a line for each item of a list or dict."""
    from html import escape

    if isinstance(value, dict):
        lines = [f"{key}: {_text(each)}" for key, each in value.items()]
    elif isinstance(value, (list, tuple)):
        lines = [_text(each) for each in value[: LINES_SHOWN + 1]]
        lines += [""] * (len(value) - len(lines))
    else:
        lines = _text(value).splitlines()
    more = [f"and {len(lines) - LINES_SHOWN:,} more"] if len(lines) > LINES_SHOWN else []
    return "<br>".join(map(escape, lines[:LINES_SHOWN] + more))


def _text(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:,.3f}" if isinstance(value, float) else str(value)


def _default(each: Field[Any]) -> Any:
    if each.default_factory is not MISSING:
        return each.default_factory()
    return each.default


@dataclass(frozen=True, repr=False)
class IndexState(Displayed):
    """The state of a search index at the end of a load, or while the load waits for it.

    Attributes:
        name: name of the index.
        documents: number of indexed documents.
        waiting: approximate number of documents not indexed yet; 0 if the index is up to date.
        failures: number of writes since the start of the load, by any client, that could not be
            indexed, for example because a vector has the wrong length. Searches do not find these
            documents.
        last_error: the server's message about the last failure; empty if there were no failures.
        last_error_key: the key of the document that failed last.
    """

    name: str
    documents: int
    waiting: int = 0
    failures: int = 0
    last_error: str = ""
    last_error_key: str = ""

    def __str__(self) -> str:
        behind = f"about {self.waiting:,} not indexed yet" if self.waiting else "up to date"
        text = f"index {self.name}: {counted(self.documents, 'document')}, {behind}"
        if not self.failures:
            return text
        last = visible(f"{self.last_error_key}: {shortened(self.last_error)}")
        return f"{text}, {counted(self.failures, 'indexing failure')} (the last for {last})"


@dataclass(repr=False)
class Report(Displayed):
    """Counts, rates and error replies of one load.

    Attributes:
        transport: ``"redis-cli"`` or ``"socket"``.
        program: the path of the redis-cli that was used; empty for a socket.
        connections: number of connections.
        rows: number of source rows whose commands were sent or skipped, including rows whose
            commands will be resent.
        commands: number of whole commands sent. A command that was resent, for example after
            NOSCRIPT or MOVED, counts once.
        replies: number of commands whose replies, including error replies, were received. A reply
            to merged commands counts for each of these commands.
        durable: number of answered commands that are confirmed to be on disk or on replicas, as
            requested by ``durable=``; None without this option. With it, ``replies`` counts only
            confirmed commands.
        failed: number of commands that were answered with an error, or with a reply that contains
            an error, such as the reply to EXEC.
        errors: the first 100 errors.
        errors_by_code: number of errors of each code, such as ``{"WRONGTYPE": 5}``; errors nested
            in a reply are counted individually. After 100 codes, new codes count as ``"(other)"``.
        skipped: number of commands that were not sent because of a null in a key or value
            (``nulls="skip"``), or because they had no data: no list item, or only null fields.
            After a complete load, ``commands`` is ``rows`` times the template's commands,
            minus ``skipped``, plus the HDEL commands of ``nulls="delete"``.
        nulls_skipped: number of null fields, and null list items, omitted from commands that were
            sent. Keys that are missing from a dict or JSON object do not count.
        existing: with ``exists="skip"``, number of commands skipped because their key exists.
        gone: number of keys that ``copy()`` found, but that were deleted or expired before it read
            them.
        deleted: number of keys that ``copy(delete=True)`` or ``mirror`` deleted.
        deleted_fields: number of fields of hashes that ``mirror`` deleted.
        not_mirrored: why ``mirror`` deleted nothing, or not everything; otherwise empty.
        unchanged: number of keys that ``copy(changed=True)`` did not copy, because the target
            already had them with the same value and expiry.
        converted: number of values that ``copy()`` converted to an encoding that the target can
            read.
        expiries_dropped: number of hash fields that ``copy()`` wrote without their time to live.
        in_parts: number of keys that ``copy()`` read and wrote in parts.
        by_value: why ``copy()`` read values with the commands of their types instead of DUMP; empty
            if it used DUMP.
        followed: number of commands of the source that ``copy(follow=True)`` applied.
        offset: the replication offset up to which ``copy(follow=True)`` applied the source's
            commands; None without ``follow``.
        lag_bytes: number of bytes of the source's commands that were not applied to the target;
            None if unknown, or without ``follow``.
        lag_seconds: number of seconds that the target was behind the source; None if unknown, or
            without ``follow``.
        keys: with ``mode="replicate"``, number of keys that the server reports after the load; None
            if unknown.
        unsent: number of commands that were encoded but not sent, for example because the load
            failed.
        rows_in_doubt: if the load continued after a lost connection, the rows of the commands in
            doubt: they were not answered, and ``retry`` did not resend them. At most 1,000,000.
        restarts: descriptions of servers that were restarted or replaced during the load, and may
            have lost acknowledged commands.
        waited_for: for each node of a cluster, the seconds that the load waited because the node
            had too many commands in flight.
        resumed_at: number of rows loaded by earlier loads with the same checkpoint.
        failed_before: number of commands that failed in earlier loads with this checkpoint.
        errors_unknown: (start, stop) of rows that earlier loads with this checkpoint sent without
            receiving the replies, so that no report counts their errors; None if there are none.
        ended_before: the time when an earlier load with this checkpoint completed the source, so
            that nothing was sent; empty otherwise.
        stopped: why the load was stopped early; empty if it was not.
        indexes: the state of each search index that covers keys of the load.
        saves_paused: with ``pause_saves``, number of servers whose saves were paused.
        saves_restored: number of these servers whose settings were restored at the end.
        saves_notes: sentences about paused saves: settings that an earlier load left paused, that
            another load still pauses, that were changed meanwhile, or that could not be restored.
        warnings: known faults of the servers that affect this load, and saves that a load has left
            paused; with what to do about them.
        plan: of ``copy(dry_run=True)``, the CopyPlan; otherwise None.
        verification: of ``copy(verify=True)``, the CopyVerifyReport; otherwise None.
        bytes_sent: number of bytes of RESP sent.
        seconds: wall time from the first byte sent to the last reply.
    """

    transport: str
    program: str = ""
    connections: int = 1
    rows: int = 0
    commands: int = 0
    replies: int = 0
    durable: int | None = None
    failed: int = 0
    errors: list[CommandError] = field(default_factory=list)
    errors_by_code: dict[str, int] = field(default_factory=dict)
    skipped: int = 0
    nulls_skipped: int = 0
    existing: int = 0
    gone: int = 0
    deleted: int = 0
    deleted_fields: int = 0
    not_mirrored: str = ""
    unchanged: int = 0
    converted: int = 0
    expiries_dropped: int = 0
    in_parts: int = 0
    by_value: str = ""
    followed: int = 0
    offset: int | None = None
    lag_bytes: int | None = None
    lag_seconds: float | None = None
    keys: int | None = None
    unsent: int = 0
    rows_in_doubt: list[int] = field(default_factory=list)
    restarts: list[str] = field(default_factory=list)
    waited_for: dict[str, float] = field(default_factory=dict)
    resumed_at: int = 0
    failed_before: int = 0
    errors_unknown: tuple[int, int] | None = None
    ended_before: str = ""
    stopped: str = ""
    indexes: list[IndexState] = field(default_factory=list)
    saves_paused: int = 0
    saves_restored: int = 0
    saves_notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    bytes_sent: int = 0
    seconds: float = 0.0
    plan: Any = field(default=None, repr=False)
    verification: Any = field(default=None, repr=False)
    # The start of the first error of each code.
    _examples: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def acknowledged(self) -> int:
        """Number of commands that the server has answered, including with errors."""
        return self.replies

    @property
    def in_doubt(self) -> int:
        """Number of commands sent without a known reply: the server may have run them or not."""
        return self.commands - self.replies

    @property
    def index_waiting(self) -> int:
        """Number of documents not indexed yet by the search index with the largest backlog."""
        return max((index.waiting for index in self.indexes), default=0)

    @property
    def commands_per_second(self) -> float:
        """Number of commands sent per second."""
        return self.commands / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_second(self) -> float:
        """Number of bytes of RESP sent per second."""
        return self.bytes_sent / self.seconds if self.seconds else 0.0

    @property
    def behind(self) -> str:
        """How far a copy is behind its source, as text with a leading comma; empty if unknown."""
        if self.lag_bytes is None:
            return ""
        return f", {size_text(self.lag_bytes)} and {self.lag_seconds:,.1f} s behind"

    def count_error(self, text: str, count: int = 1) -> None:
        """Count errors by their code, the first word of ``text``; the rest may be missing."""
        codes = self.errors_by_code
        code = text[:CODE_CHARACTERS].partition(" ")[0]
        if code not in codes:
            if len(codes) >= CODES_KEPT:
                code = OTHER_CODES
            if code not in codes:
                self._examples[code] = without_passwords(text[:EXAMPLE_CHARACTERS])
        codes[code] = codes.get(code, 0) + count

    def uncount_error(self, text: str) -> None:
        """Undo ``count_error()`` for an error reply that does not answer a command of the load."""
        codes = self.errors_by_code
        code = text[:CODE_CHARACTERS].partition(" ")[0]
        code = code if code in codes else OTHER_CODES
        codes[code] -= 1
        if not codes[code]:
            del codes[code]

    def raise_for_errors(self) -> None:
        """Raise LoadErrors if commands failed in this load, or in earlier loads that it resumed."""
        if self.failed or self.failed_before:
            raise LoadErrors(self)

    def __str__(self) -> str:
        return visible(self.message)

    @property
    def message(self) -> Message:
        """The report as a Message, whose option names other interfaces replace."""
        if self.plan is not None:
            return Message(self.plan.message)
        several = f", {self.connections} connections" if self.connections > 1 else ""
        lines = [
            f"{counted(self.commands, 'command')} ({size_text(self.bytes_sent)}, "
            f"{counted(self.rows, 'row')}) "
            f"in {self.seconds:,.2f} s over {self.transport}{several}: "
            f"{self.commands_per_second:,.0f} commands/s, {size_text(self.bytes_per_second)}/s",
            f"{counted(self.replies, 'reply', 'replies')}, {counted(self.failed, 'error')}",
        ]
        if self.durable is not None:
            lines[1] += f", {counted(self.durable, 'command')} durable"
        if self.resumed_at or self.failed_before or self.ended_before:
            verb = "was" if self.resumed_at == 1 else "were"
            before = f"{counted(self.resumed_at, 'row')} {verb} loaded before"
            if self.failed_before:
                before += f" ({counted(self.failed_before, 'error')})"
            lines.append(f"{before}{self.ended_before and f', until {self.ended_before}'}")
        if self.errors_unknown is not None:
            first_row, end = self.errors_unknown
            lines.append(
                f"some of the rows {first_row:,} to {end - 1:,} ran before, and their replies were "
                "not received: it is unknown which of them failed"
            )
        if self.in_doubt:
            first = f", first of row {min(self.rows_in_doubt):,}" if self.rows_in_doubt else ""
            lines[1] += (
                f"; {counted(self.in_doubt, 'command')} in doubt (sent, no reply known{first})"
            )
        if self.unsent:
            lines[1] += f"; {counted(self.unsent, 'command')} not sent"
        for count, noun, text in (
            (self.skipped, "command", "skipped: a null, or nothing to send"),
            (self.nulls_skipped, "null", "left out"),
            (self.existing, "command", "skipped because the key exists"),
            (self.gone, "key", "deleted or expired before reading"),
            (self.deleted, "key", "deleted: not in the source"),
            (self.deleted_fields, "field", "deleted: not in the source"),
            (self.unchanged, "key", "unchanged"),
            (self.converted, "value", "converted for the target"),
        ):
            if count:
                lines.append(f"{counted(count, noun)} {text}")
        if self.not_mirrored:
            extent = "not everything" if self.deleted or self.deleted_fields else "nothing"
            lines.append(Message(f"{extent} deleted (", Hint("mirror"), f"): {self.not_mirrored}"))
        if self.expiries_dropped:
            dropped = counted(self.expiries_dropped, "time", "times")
            lines.append(
                Message(f"{dropped} to live of fields dropped (", Hint("field_ttl", "drop"), ")")
            )
        if self.in_parts:
            lines.append(f"{counted(self.in_parts, 'key')} read and written in parts")
        if self.by_value:
            lines.append(f"values read by the commands of their types, not DUMP: {self.by_value}")
        if self.offset is not None:
            commands = counted(self.followed, "later command")
            lines.append(f"{commands} applied, to replication offset {self.offset:,}{self.behind}")
        if self.keys is not None:
            lines.append(f"the server has {counted(self.keys, 'key')}")
        lines += [f"{restart}: acknowledged commands may be lost" for restart in self.restarts]
        if self.waited_for:
            node, seconds = max(self.waited_for.items(), key=lambda each: each[1])
            if seconds > MIN_WAIT_SHARE * self.seconds:
                lines.append(f"waited longest for {node} ({seconds:,.2f} s)")
        lines += map(str, self.indexes)
        if self.saves_paused:
            where = f" on {self.saves_paused} servers" if self.saves_paused > 1 else ""
            lines.append(f"saves paused{where} during the load, and {self._restored}")
        lines += self.saves_notes
        if self.stopped:
            lines.append(self.stopped)
        lines += [Message("warning: ", each) for each in self.warnings]
        first, *others = lines + self._kinds()
        return Message(first, *(Message("\n", line) for line in others))

    @property
    def _restored(self) -> str:
        if self.saves_restored == self.saves_paused:
            return "restored"
        return f"restored on {self.saves_restored}" if self.saves_restored else "not restored"

    def _kinds(self) -> list[str]:
        """Describe the errors: a line for each error text, with its count and its first row.

        There is a line for each code instead if there are many texts (for example because they
        quote arguments), or if not all errors were kept.
        """
        if not self.errors:
            return []
        first: dict[str, CommandError] = {}
        kept: dict[str, list[str]] = {}
        for error in self.errors:
            first.setdefault(error.text, error)
            first.setdefault(error.code, error)
            kept.setdefault(error.code, []).append(error.text)
        texts = Counter(error.text for error in self.errors)
        all_kept = sum(self.errors_by_code.values()) <= len(self.errors)
        by_text = all_kept and len(texts) <= KINDS_SHOWN
        kinds = texts if by_text else Counter(self.errors_by_code)
        lines = []
        for kind, count in kinds.most_common(KINDS_SHOWN):
            one = first.get(kind)
            text = kind if by_text else self._text_of(kind, kept.get(kind, []))
            where = f", first for {one.place}" if one and one.place else ""
            lines.append(f"{count:>6,} x {shortened(text)}{where}")
        if len(kinds) > KINDS_SHOWN:
            others = counted(len(kinds) - KINDS_SHOWN, "other code")
            lines.append(f"and {others} (see errors_by_code)")
        if all(error.index is None for error in self.errors):
            problem = f"{self.transport} can't tell which rows failed; "
            lines.append(Message(problem, Hint("transport", "socket"), " can"))
        return lines

    def _text_of(self, code: str, kept: list[str]) -> str:
        """Return the text that a code's errors share; if they differ, the code and an example."""
        if len(set(kept)) == 1 and (len(kept) > 1 or self.errors_by_code[code] == 1):
            return kept[0]
        example = kept[0] if kept else self._examples.get(code, "")
        return f"{code}, such as: {shortened(example)}" if example else code


class LoadErrors(FastrespError):
    """The server answered some commands with errors; the load ran to its end or was stopped.

    Attributes:
        report: the report; ``report.errors`` has the first 100 error replies.
    """

    def __init__(
        self,
        report: Report,
        *,
        hint: str = "(on_error='collect' returns this report instead of raising)",
    ) -> None:
        super().__init__(report)
        self.report = report
        self._hint = hint

    def __str__(self) -> str:
        return f"{self.report}\n{self._hint}".rstrip()

    def __repr__(self) -> str:
        """Show the text, since engines log the repr, and the report's repr may have 100 errors."""
        return f"{type(self).__name__}({str(self)!r})"


class PushError(LoadErrors):
    """The server refused items of ``ListBuffer.push()``, which then stopped.

    Attributes:
        items: the items that were not pushed, in order, as bytes: items of refused commands, and
            items that were read from the source but not sent.
        taken: number of items read from the source. All except ``items`` are in the list.
        later: number of items that were pushed although they follow a refused item in the source,
            because they were in flight at the first refusal.
    """

    def __init__(self, report: Report, items: list[bytes], taken: int, later: int) -> None:
        super().__init__(report)
        self.items = items
        self.taken = taken
        self.later = later

    def __str__(self) -> str:
        verb = "is" if len(self.items) == 1 else "are"
        text = (
            f"{counted(len(self.items), 'item')} of the {self.taken:,} read from the source {verb} "
            "not in the list"
        )
        if self.later:
            text += f", but {self.later:,} after the first of these"
        return (
            f"{self.report}\n{text} (once the server accepts items, push the exception's 'items', "
            "then the rest of the source)"
        )


def counted(count: int, one: str, several: str = "") -> str:
    """Return a number with a noun, singular or plural: "1 row", "2 rows"."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def size_text(count: float) -> str:
    """Return a number of bytes as text, in decimal units."""
    for unit, divisor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= divisor:
            return f"{count / divisor:,.1f} {unit}"
    return counted(round(count), "byte")
