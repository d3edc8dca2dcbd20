"""The outcome of a task, or of all tasks of a job."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from ..outcome.report import Displayed, Report, counted, size_text

__all__ = ["Totals"]

logger = logging.getLogger("fastresp.sink")
# Numbers with the same name in a report.
FROM_REPORT = ("commands", "skipped", "nulls_skipped", "in_doubt", "bytes_sent", "seconds")


@dataclass(repr=False)
class Totals(Displayed):
    """The outcome of a task, or of all tasks of a job. It can be pickled.

    Attributes:
        task: the task's number or name; empty if the totals are of several tasks.
        rows: number of rows loaded by this and earlier attempts.
        rows_before: number of rows loaded by earlier attempts (``exactly_once``); included in
            ``rows``.
        commands: number of whole commands sent by this attempt.
        failed: number of commands of this and earlier attempts that were answered with an error.
        errors_by_code: number of errors of each code in this attempt, such as
            ``{"WRONGTYPE": 5}``.
        skipped: number of commands not sent because of a null, or because they had no data.
        nulls_skipped: number of null fields, and null list items, omitted from commands that were
            sent.
        in_doubt: number of commands that were sent, but whose replies are unknown.
        bytes_sent: number of bytes of RESP sent.
        seconds: wall time from the first byte sent to the last reply; for several tasks, the sum.
        errors_unknown: upper bound of the number of rows that earlier attempts sent without
            receiving the replies. It is unknown how many of these rows failed.
        job_failed: whether the job failed (Spark). If so, the totals include only tasks that had
            committed.
    """

    task: str = ""
    rows: int = 0
    rows_before: int = 0
    commands: int = 0
    failed: int = 0
    errors_by_code: dict[str, int] = field(default_factory=dict)
    skipped: int = 0
    nulls_skipped: int = 0
    in_doubt: int = 0
    bytes_sent: int = 0
    seconds: float = 0.0
    errors_unknown: int = 0
    job_failed: bool = False

    @classmethod
    def of(cls, task: str, rows: int, report: Report) -> Self:
        """Return the totals of a task, given the number of rows and the report of the load."""
        unknown = report.errors_unknown
        return cls(
            task=task,
            rows=rows,
            rows_before=report.resumed_at,
            failed=report.failed + report.failed_before,
            errors_unknown=0 if unknown is None else unknown[1] - unknown[0],
            errors_by_code=dict(report.errors_by_code),
            **{name: getattr(report, name) for name in FROM_REPORT},
        )

    @classmethod
    def sum(cls, several: Iterable[Totals], *, job_failed: bool = False) -> Self:
        """Return the sum of the totals of several tasks."""
        found = cls(job_failed=job_failed)
        errors: Counter[str] = Counter()
        for each in several:
            for name in vars(cls()):
                if name not in ("task", "errors_by_code", "job_failed"):
                    setattr(found, name, getattr(found, name) + getattr(each, name))
            errors.update(each.errors_by_code)
        found.errors_by_code = dict(errors)
        return found

    def log(self, name: str) -> None:
        """Write the totals to the logger ``fastresp.sink``, after the name of the data.

        If commands failed or may have failed, the level is WARNING, which Python shows by default.
        """
        warned = self.failed or self.in_doubt or self.errors_unknown
        logger.log(logging.WARNING if warned else logging.INFO, "%s: %s", name, self)

    def __str__(self) -> str:
        before = f" ({self.rows_before:,} of them before)" if self.rows_before else ""
        text = (
            f"{counted(self.rows, 'row')}{before}, {counted(self.commands, 'command')} "
            f"({size_text(self.bytes_sent)}), {counted(self.failed, 'error')}"
        )
        if self.errors_unknown:
            text += f", {counted(self.errors_unknown, 'row')} whose errors are unknown"
        if self.in_doubt:
            text += f", {counted(self.in_doubt, 'command')} in doubt"
        if self.skipped:
            text += f", {counted(self.skipped, 'command')} skipped: a null, or nothing to send"
        if self.nulls_skipped:
            text += f", {counted(self.nulls_skipped, 'null')} left out"
        codes = [f"{count:,} x {code}" for code, count in self.errors_by_code.items()]
        return "\n".join([text, *codes])
