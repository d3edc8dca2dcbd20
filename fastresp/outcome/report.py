"""What became of a load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from .error_reply import CommandError, FastrespError
from .excerpts import shortened
from .messages import Hint, Message
from .passwords import without_passwords

__all__ = ["ERRORS_KEPT", "LoadErrors", "Report", "size_text"]

# Error replies kept with their text; all of them are counted.
ERRORS_KEPT = 100
KINDS_SHOWN = 5
# And their codes, of a server that invents them; a code is a word.
CODES_KEPT = 100
CODE_CHARACTERS = 40
# What is kept of an example of each.
EXAMPLE_CHARACTERS = 200
OTHER_CODES = "(other)"


@dataclass
class Report:
    """Counts, rates and error replies of one load.

    Attributes:
        transport: what carried it: ``"redis-cli"`` or ``"socket"``.
        reason: why that one, and which program it was.
        connections: how many connections there were.
        rows: source rows whose commands were sent.
        commands: whole commands sent. One that was sent again since the server had forgotten its
            script counts once.
        replies: replies known to have come, error replies included.
        failed: error replies among them, and replies that hold one, as that of EXEC may.
        errors: the first 100 errors.
        errors_by_code: how many errors there were of each code, such as ``{"WRONGTYPE": 5}``, those
            within a reply one by one; of more than 100 codes the later ones are ``"(other)"``.
        skipped: commands that were left out since a null stood in them (``nulls="skip"``), of
            the rows encoded so far. A pair or an item that was left out of a command is none.
        unsent: commands that were made but never sent, as after an error that ended the load.
        stopped: why the load was ended before its end; empty when it was not.
        bytes_sent: bytes of RESP sent.
        seconds: from the first byte to the last reply.
    """

    transport: str
    reason: str = ""
    connections: int = 1
    rows: int = 0
    commands: int = 0
    replies: int = 0
    failed: int = 0
    errors: list[CommandError] = field(default_factory=list)
    errors_by_code: dict[str, int] = field(default_factory=dict)
    skipped: int = 0
    unsent: int = 0
    stopped: str = ""
    bytes_sent: int = 0
    seconds: float = 0.0
    # The beginning of the first error of each code.
    _examples: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def acknowledged(self) -> int:
        """Commands that the server has answered: it has run them, or said why not."""
        return self.replies

    @property
    def in_doubt(self) -> int:
        """Commands sent whose reply is not known: the server may or may not have run them."""
        return self.commands - self.replies

    @property
    def commands_per_second(self) -> float:
        """Commands sent a second."""
        return self.commands / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_second(self) -> float:
        """Bytes of RESP sent a second."""
        return self.bytes_sent / self.seconds if self.seconds else 0.0

    def count_errors(self, texts: Iterable[str]) -> None:
        """Count error replies, of which the beginning suffices, by their codes."""
        codes = self.errors_by_code
        for text in texts:
            code = text[:CODE_CHARACTERS].partition(" ")[0]
            if code not in codes:
                if len(codes) >= CODES_KEPT:
                    code = OTHER_CODES
                if code not in codes:
                    self._examples[code] = without_passwords(text[:EXAMPLE_CHARACTERS])
            codes[code] = codes.get(code, 0) + 1

    def uncount_error(self, text: str) -> None:
        """Take an error reply off the count: it turned out to answer no command of the load."""
        codes = self.errors_by_code
        code = text[:CODE_CHARACTERS].partition(" ")[0]
        code = code if code in codes else OTHER_CODES
        codes[code] -= 1
        if not codes[code]:
            del codes[code]

    def raise_for_errors(self) -> None:
        """Raise LoadErrors if the server answered any command with an error."""
        if self.failed:
            raise LoadErrors(self)

    def __str__(self) -> str:
        return str(self.message)

    @property
    def message(self) -> Message:
        """The report in words; the options that they name can be rendered in other words."""
        lines = [
            f"{_count(self.commands, 'command')} ({size_text(self.bytes_sent)}, "
            f"{_count(self.rows, 'row')}) "
            f"in {self.seconds:,.2f} s over {self._over()}: "
            f"{self.commands_per_second:,.0f} commands/s, {size_text(self.bytes_per_second)}/s",
            f"{_count(self.replies, 'reply', 'replies')}, {self.failed:,} of them errors",
        ]
        if self.in_doubt:
            lines[1] += f"; {_count(self.in_doubt, 'command')} in doubt (sent, no reply known)"
        if self.unsent:
            lines[1] += f"; {self.unsent:,} made but not sent"
        if self.skipped:
            skipped = f"{_count(self.skipped, 'command')} left out for a null ("
            lines.append(Message(skipped, Hint("nulls", "skip"), ")"))
        if self.stopped:
            lines.append(self.stopped)
        first, *others = lines + self._kinds()
        return Message(first, *(Message("\n", line) for line in others))

    def _over(self) -> str:
        several = f", {self.connections} connections" if self.connections > 1 else ""
        return self.transport + several

    def _kinds(self) -> list[str]:
        """The error replies, counted by their words, each with the place of the first.

        Where the words differ, as they hold arguments, or were not all kept: by their codes.
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
        by_text = len(texts) <= KINDS_SHOWN and sum(self.errors_by_code.values()) <= len(
            self.errors
        )
        kinds = texts if by_text else Counter(self.errors_by_code)
        lines = []
        for kind, count in kinds.most_common(KINDS_SHOWN):
            one = first.get(kind)
            words = kind if by_text else self._words_of(kind, kept.get(kind, []))
            lines.append(f"{count:>6,} x {shortened(words)}{_first_row(one)}")
        if len(kinds) > KINDS_SHOWN:
            lines.append(f"and {len(kinds) - KINDS_SHOWN:,} other codes (errors_by_code has them)")
        if all(error.index is None for error in self.errors):
            lines.append(
                Message(
                    f"{self.transport} can't say which rows these were; ",
                    Hint("transport", "socket"),
                    " names them",
                )
            )
        return lines

    def _words_of(self, code: str, kept: list[str]) -> str:
        """The words of the errors of a code: those kept where they are equal, else an example."""
        if len(set(kept)) == 1 and (len(kept) > 1 or self.errors_by_code[code] == 1):
            return kept[0]
        example = kept[0] if kept else self._examples.get(code, "")
        return f"{code}, such as: {shortened(example)}" if example else code


class LoadErrors(FastrespError):
    """A load with error replies among the answers: it ran to its end, or was told to stop.

    Attributes:
        report: the whole report; ``report.errors`` holds the first 100 error replies.
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


def _first_row(error: CommandError | None) -> str:
    """Which row was the first with some error, where that is known."""
    if error is None or error.row is None:
        return ""
    if error.file is None:
        return f", first for row {error.row:,}"
    return f", first for row {error.row_in_file:,} of {error.file}"


def _count(count: int, one: str, several: str = "") -> str:
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def size_text(count: float) -> str:
    """A number of bytes in decimal units."""
    for unit, divisor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= divisor:
            return f"{count / divisor:,.1f} {unit}"
    return f"{count:,.0f} bytes"
