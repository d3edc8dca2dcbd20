"""What became of a load."""

from __future__ import annotations

from dataclasses import dataclass, field

from .errors import CommandError, CommandErrors

__all__ = ["ERRORS_KEPT", "Report"]

# Error replies kept with their text; all of them are counted.
ERRORS_KEPT = 100
ERRORS_SHOWN = 5


@dataclass
class Report:
    """Counts, rates and error replies of one load.

    Attributes:
        transport: what carried it: ``"redis-cli"``.
        reason: why that one, and which program it was.
        rows: source rows whose commands were sent.
        commands: whole commands sent.
        replies: replies known to have come, error replies included.
        failed: error replies among them.
        errors: the first 100 error replies.
        bytes_sent: bytes of RESP sent.
        seconds: from the first byte to the last reply.
    """

    transport: str
    reason: str = ""
    rows: int = 0
    commands: int = 0
    replies: int = 0
    failed: int = 0
    errors: list[CommandError] = field(default_factory=list)
    bytes_sent: int = 0
    seconds: float = 0.0

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

    def raise_for_errors(self) -> None:
        """Raise CommandErrors if the server answered any command with an error."""
        if self.failed:
            raise CommandErrors(self)

    def __str__(self) -> str:
        lines = [
            f"{self.commands:,} commands ({self.bytes_sent / 1e6:,.1f} MB, {self.rows:,} rows) "
            f"in {self.seconds:,.2f} s over {self.transport}: "
            f"{self.commands_per_second:,.0f} commands/s, {self.bytes_per_second / 1e6:,.0f} MB/s",
            f"{self.replies:,} replies, {self.failed:,} of them errors",
        ]
        if self.in_doubt:
            lines[1] += f"; {self.in_doubt:,} commands in doubt (sent, no reply known)"
        lines += [f"  {error}" for error in self.errors[:ERRORS_SHOWN]]
        if self.failed > ERRORS_SHOWN and self.errors:
            lines.append(f"  ... and {self.failed - min(ERRORS_SHOWN, len(self.errors)):,} more")
        return "\n".join(lines)
