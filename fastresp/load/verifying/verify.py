"""``verify()``: compare what is in a server with what a source says."""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias

from ...encode.template import Template, TemplateLike, as_template
from ...outcome.messages import Hint, Message
from ...outcome.report import counted
from ...outcome.tracebacks import public
from ...server.options import Nulls, Options
from ...server.settings import ServerLike
from ...sources.source import Data, as_source, place_of
from ...transports.driver import Asking, Blocking, Giving, Wanted, run
from ...transports.locating import finding_lines, locating
from ..command_names import command_names
from ..progress import reporting
from .comparison import Comparison
from .confidence import at_most
from .kept import Candidate, Kept, settled
from .lines import DifferenceLines, Differences
from .questions import Questions
from .reading import (
    AsyncReadingChunks,
    ReadingChunks,
    ReadingCore,
    Show,
    reading_server,
    reading_with,
)
from .repair import independent, repairing
from .report import Difference, VerifyReport
from .unverifiable import check_names, check_template

__all__ = ["How", "Progress", "verify", "verifying"]

Progress: TypeAlias = bool | Callable[[VerifyReport], object] | None
Looking: TypeAlias = Generator[Wanted | Giving, Any, None]

# How long to wait before the second look.
PAUSE_S = 0.3
MOST_DIFFERENCES = 100_000


@dataclass(frozen=True, kw_only=True)
class How:
    """The options of ``verify``.

    Raises:
        ValueError: one is invalid.
    """

    server: ServerLike = None
    sample: str | float | None = None
    seed: int = 0
    exact: bool = False
    differences: Differences = None
    repair: bool = False
    max_differences: int = MOST_DIFFERENCES
    since: float | None = None
    timeout: float | None = 30.0
    progress: Progress = None
    max_reply_bytes: int | None = None
    in_event_loop: bool = False

    def __post_init__(self) -> None:
        most = self.max_differences
        if not isinstance(most, int) or isinstance(most, bool) or most < 1:
            words = f" must be a number of 1 or more, not {most!r}"
            raise ValueError(Message(Hint("max_differences"), words))
        if self.since is not None and not (
            isinstance(self.since, (int, float)) and 0 <= self.since < math.inf
        ):
            words = f" must be seconds since 1970, as of time.time(), not {self.since!r}"
            raise ValueError(Message(Hint("since"), words))
        if self.since is not None and self.since > time.time():
            words = f" is in the future: {datetime.fromtimestamp(self.since):%Y-%m-%d %H:%M:%S}"
            raise ValueError(Message(Hint("since"), f"{words}; say when the load began"))
        if self.share is not None and self.exact:
            words = " needs all rows, to know what each key must have; leave out "
            raise ValueError(Message(Hint("exact"), words, Hint("sample")))

    @property
    def share(self) -> float | None:
        """The share of rows to look at; None for all."""
        sample = self.sample
        if sample is None:
            return None
        try:
            text = sample.strip() if isinstance(sample, str) else sample
            percent = isinstance(text, str) and text.endswith("%")
            share = float(text[:-1]) / 100 if percent else float(text)  # type: ignore[index]
        except (TypeError, ValueError):
            share = 0.0
        if not 0 < share <= 1 or isinstance(sample, bool):
            words = f" must be a share such as '1%' or 0.01, above 0, not {sample!r}"
            raise ValueError(Message(Hint("sample"), words))
        return share


@public
def verify(
    data: Data,
    template: TemplateLike = None,
    *,
    server: ServerLike = None,
    sample: str | float | None = None,
    seed: int = 0,
    exact: bool = False,
    differences: Differences = None,
    repair: bool = False,
    max_differences: int = MOST_DIFFERENCES,
    since: float | None = None,
    nulls: Nulls = "auto",
    timeout: float | None = 30.0,
    progress: Progress = None,
    default: Callable[[Any], Any] | None = None,
    max_reply_bytes: int | None = None,
) -> VerifyReport:
    """Compare what is in Redis or Valkey with what a source says.

    Pass the source and the template of a load. Each command is turned into one that reads what it
    wrote: HSET into HMGET, SET into GET, SADD into SMISMEMBER, ZADD into ZMSCORE, RPUSH into
    LRANGE, JSON.SET into JSON.GET, and the replies are compared. Nothing is written, unless you ask
    for ``repair``. It does not matter how the data was loaded. The server may be a replica, or any
    node of a cluster: then all primaries are read.

    A later row may overwrite what an earlier one says: then only the later one counts. At the end,
    what differs is looked at a second time; what something else wrote meanwhile is counted apart.

    Args:
        data, template, server, nulls, timeout, default: as for ``mass_insert``. The commands must
            say by themselves what they leave: SET, HSET, SADD, ZADD, RPUSH, LPUSH, JSON.SET, DEL,
            HDEL, SREM, ZREM, EXPIRE and their variants, without options such as NX. Of a list, the
            source must name all items.
        sample: look at a share of the rows, such as ``"1%"`` or 0.01. The report then says how many
            of all rows differ at most.
        seed: chooses another sample of the same share.
        exact: fields and members that the source does not name differ, too; items of lists always
            do, but in a sample. Needs 16 to 64 bytes of memory for each key, and for each item of
            keys that are written by several rows.
        differences: where differences go at the end: the path of a JSON lines file, or a callable
            that is called with each Difference.
        repair: write again what differs, and look again; what the source removes is removed.
            Refused for RPUSH and LPUSH, whose items would be there twice. What only ``exact``
            finds stays. So do keys of another type, such as a string in place of a hash, with their
            times to live, and what the commands after it in the same row say.
        max_differences: compare no more values once this many differ; each needs about 1 kB of
            memory, and its texts. Values that a later row overwrites count until that row is
            reached, so a source that writes many keys several times may need more.
        since: when the load began, in seconds since 1970, as returned by ``time.time()``. Then a
            key may have expired, and a time to live must not be shorter than the time since then
            explains. Without it, a time to live must be at most what the source says.
        progress: True for a progress bar on the terminal, or a callable that is called with the
            VerifyReport so far.
        max_reply_bytes: a larger reply ends the comparison with an error; None for 512 MiB. One
            reply has up to 1,000 values.

    Returns:
        The report: rows, values, differences of each kind; its ``same`` is whether nothing differs.

    Raises:
        EncodeError, TemplateError: as ``mass_insert``; also if a command can't be verified.
        CommandError: the server refuses a read, other than for the type of a key.
        TypeError: ``differences`` is neither a path nor a plain function.
        ValueError: an option is invalid, or a list was to be repaired.
        TransportError, TransportTimeout: as ``mass_insert``.
        OSError: the file of differences exists, or can't be written.

        An exception during the comparison, or while the differences are written, has the report so
        far as its ``report`` attribute.

    Lists need 32 bytes of memory for each key, since the index of an item is counted, and about 300
    more until the last of their rows; keys that have expired need 32 bytes. What is not followed:
    that a key loses its time to live when rows remove all items and later ones add some. After a
    JSON.SET of a path that may name several places, the rest of a document is not compared:
    ``stopped`` says so.
    """
    how = How(
        server=server,
        sample=sample,
        seed=seed,
        exact=exact,
        differences=differences,
        repair=repair,
        max_differences=max_differences,
        since=since,
        timeout=timeout,
        progress=progress,
        max_reply_bytes=max_reply_bytes,
    )
    options = Options(nulls=nulls, timeout=timeout, default=default)
    template = as_template(template)
    return run(verifying(ReadingChunks(as_source(data, template), template, options), how))


def verifying(
    chunks: ReadingChunks | AsyncReadingChunks, how: How
) -> Generator[Any, Any, VerifyReport]:
    """Verify without waiting itself: yield whatever the driver has to wait for.

    Args:
        chunks: the source; closed at the end.
        how: the options.
    """
    verification = Verification(chunks, how)
    with closing(chunks), DifferenceLines(how.differences) as lines:
        try:
            names = partial(check_source, chunks.data, chunks.template, how)
            yield Asking(names, chunks.blocks)
            yield from verification.looking()
            verification.stopped = "what differs was not looked at to the end a second time"
            yield from verification.looking_again()
            if how.repair:
                verification.stopped = "not everything was repaired, or looked at after it"
                yield from verification.repairing()
            yield from verification.locating()
        except BaseException as error:
            if isinstance(error, Exception):
                yield from locating(chunks.data, [error])
                yield from verification.locating()
            verification.end_early(error)
            raise
        verification.conclude()
        try:
            for each in verification.differences():
                lines.write(each)
        except BaseException as error:
            error.report = verification.report  # type: ignore[attr-defined]
            raise
    return verification.report


def check_source(data: Any, template: Template | None, how: How) -> None:
    """Refuse commands that can't be verified or repaired, as far as they are known.

    Raises:
        TemplateError, EncodeError: there is such a command.
        ValueError: it can't be repaired.
    """
    names = command_names(data, template)
    check_names(names, template)
    check_template(template)
    lists = sorted({"RPUSH", "LPUSH"}.intersection(names or ()))
    if how.repair and lists:
        words = f" can't be used with {lists[0]}: the items would be there twice; delete the lists "
        raise ValueError(Message(Hint("repair", True), f"{words}that differ, and load them again"))


class Verification:
    """One verification: what was compared, and what differs so far."""

    def __init__(self, chunks: ReadingChunks | AsyncReadingChunks, how: How) -> None:
        self.how = how
        self.report = VerifyReport(sample=how.share)
        # What an error leaves undone.
        self.stopped = "not all rows were compared, and none a second time"
        self._chunks = chunks
        self._server = reading_server(how.server)
        self._kept = Kept(how.max_differences)
        self._since = -1.0 if how.since is None else how.since
        self._comparison = self._comparing(self._kept, exact=how.exact)
        chunks.questions = Questions(
            self._comparison, share=how.share or 1.0, seed=how.seed, exact=how.exact,
            repair=how.repair,
        )  # fmt: skip
        self._started = time.monotonic()
        # What differs, whether it changed between two looks, and whether it is repaired.
        self._differing: list[tuple[Candidate, bool, bool]] = []
        self._lines: dict[int, int] = {}  # of their rows, as far as they are known

    def _comparing(self, kept: Kept, **how: bool) -> Comparison:
        return Comparison(kept, since=self._since, max_reply_bytes=self.how.max_reply_bytes, **how)

    def _core(self, comparison: Comparison) -> ReadingCore:
        return ReadingCore(
            self._server, self.how.timeout, comparison, max_reply_bytes=self.how.max_reply_bytes
        )

    def looking(self) -> Looking:
        """Compare all rows."""
        core = self._core(self._comparison)
        with self._showing() as show:
            yield from reading_with(core, self._chunks, show)

    @contextmanager
    def _showing(self) -> Iterator[Show | None]:
        """Yield what to call for progress."""
        progress = self.how.progress
        if callable(progress):
            yield lambda _: progress(self._counted())
        else:
            with reporting(progress, self._chunks.data) as show:
                yield show

    def _counted(self) -> VerifyReport:
        report, comparison = self.report, self._comparison
        writer = getattr(self._chunks, "writer", None)  # missing until the source is open
        report.rows = 0 if writer is None else writer.rows
        report.rows_compared, report.values = comparison.rows, comparison.values
        report.seconds = time.monotonic() - self._started
        return report

    def looking_again(self) -> Looking:
        """Look a second time at what differs."""
        if self._comparison.full:
            self._kept.forget_counts()
        first = self._kept.candidates()
        if first:
            yield Blocking(partial(time.sleep, PAUSE_S))
        second = Kept(len(first) + 1, sys.maxsize)
        yield from self._looking_at(first, second)
        still, self.report.written_meanwhile = settled(first, second)
        self._differing = [(each, changed, False) for each, changed in still]

    def _looking_at(self, some: Sequence[Candidate], kept: Kept) -> Looking:
        """Compare values one by one; what differs is kept by its index among them."""
        if not some:
            return
        comparison = self._comparing(kept, again=True)
        chunks = ReadingChunks([each.statement() for each in some], None, Options())
        chunks.questions = Questions(comparison, again=True)
        yield from reading_with(self._core(comparison), chunks)

    def repairing(self) -> Looking:
        """Send again what differs, and look at it again.

        Times to live come last, for keys and rows of which nothing else differs any more.
        """
        some = [each for each, _, _ in self._differing]
        left = set(range(len(some)))
        errors: Counter[str] = Counter()
        for times in (False, True):
            of_others = [some[at] for at in sorted(left) if some[at].group not in ("time", "count")]
            keys = {each.key for each in of_others if times}
            rows = {each.row for each in of_others if times}
            chosen = [
                each for each in independent(some)
                if (each.group == "time") == times and each.key not in keys and each.row not in rows
            ]  # fmt: skip
            if not any(each.repairing() for each in chosen):
                continue
            repairs = yield from repairing(
                chosen, self.how.server, self.how.timeout, in_event_loop=self.how.in_event_loop
            )
            errors.update(repairs.errors_by_code)
            kept = Kept(len(some) + 1, sys.maxsize)
            yield from self._looking_at(some, kept)
            left = {each.row for each in kept}
        self.report.repair_errors = dict(errors)
        self._differing = [
            (each, changed, number not in left)
            for number, (each, changed, _) in enumerate(self._differing)
        ]

    def locating(self) -> Looking:
        """Find the lines of the rows that differ."""
        rows = {each.row for each, _, _ in self._differing}
        self._lines = yield from finding_lines(self._chunks.data, rows)

    def conclude(self) -> None:
        """Complete the report."""
        report = self._counted()
        rows = set()
        for each in self.differences():
            report.add(each)
            rows.add(each.row)
        report.rows_differing = len(rows)
        report.unrepaired = report.differing - report.repaired if self.how.repair else None
        if self._kept.left_out:
            report.stopped = Message(
                f"{self._kept.left_out:,} more keys have items that the source does not name (a "
                "larger ",
                Hint("max_differences", ...),
                " reports more)",
            )
        if self._kept.unknown:
            report.stopped = (
                f"{counted(self._kept.unknown, 'document')} were not compared as a whole: later "
                "rows write parts of them, and it is not known which (paths with a *, .. or ?)"
            )
        if self._comparison.full:
            report.stopped = Message(
                f"no values were compared after {len(self._kept):,} differed (a larger ",
                Hint("max_differences", ...),
                " compares more)",
            )
        # What was left out was not chosen by chance.
        if report.sample is not None and report.rows and not report.stopped:
            report.at_most = at_most(len(rows), report.rows_compared, report.rows)

    def end_early(self, error: BaseException) -> None:
        """Add the report so far to an exception."""
        self._kept.forget_counts()
        self._differing = self._differing or [
            (each, False, False) for each in self._kept.candidates()
        ]
        self.conclude()
        self.report.at_most = self.report.unrepaired = None
        self.report.stopped = self.stopped
        if self._comparison.replies or getattr(error, "report", None) is not None:
            error.report = self.report  # type: ignore[attr-defined]

    def differences(self) -> Iterator[Difference]:
        """Yield what differs, in the order of the source.

        A time to live that is missing with its key is not another difference.
        """
        missing = {
            each.key for each, _, _ in self._differing
            if each.kind == "missing" and each.group != "time"
        }  # fmt: skip
        place = place_of(self._chunks.data)
        for each, changed, repaired in self._differing:
            if each.group == "time" and each.kind == "missing" and each.key in missing:
                continue
            found = each.found
            if each.group == "time":
                found = None if found < 0 else found
            named = each.group not in ("value", "time", "count")
            difference = Difference(
                each.row, each.key, each.name if named else None, each.kind, each.wanted, found,
                each.size, changed, repaired,
            )  # fmt: skip
            if place is not None:
                file, row = place(each.row)
                line = self._lines.get(each.row)
                difference = replace(difference, file=file, row_in_file=row, line=line)
            yield difference
