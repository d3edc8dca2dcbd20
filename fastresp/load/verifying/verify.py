"""``verify()``: compare the data in a server with its source."""

from __future__ import annotations

import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

from ...encode.payload.duplicates import SourceKeys
from ...encode.template import TemplateLike, as_template
from ...outcome.errors import CommandError
from ...outcome.messages import Hint, Message
from ...outcome.report import Report, counted
from ...outcome.tracebacks import public
from ...replies.key_pattern import replies_by_key
from ...replies.locating import finding_lines, locating, place_of
from ...replies.scan import Scan
from ...server.options import Mirror, Nulls, Options, arguments_of
from ...server.settings import Server, ServerLike
from ...sources.source import Data, as_source
from ...transports.driver import Blocking, Emit, Pull, Step, run, wrap
from ..mirror import OWN_KEYS
from ..mirror import check_source as check_mirrored
from ..progress import reporting
from ..stored_receipt import StoredReceipt, read_receipt
from .comparison import Comparison
from .differences import Candidate, Differences, apply_recheck, missing_items, repairable
from .read_planner import ReadPlanner
from .reading import (
    READING,
    ReadChunks,
    Show,
    VerifyCore,
    check_verifiable,
    compare_core,
    repair_core,
)
from .report import (
    Difference,
    DifferenceTarget,
    VerifyReport,
    difference_writer,
    max_share,
    share_of,
)

__all__ = ["Progress", "VerifyOptions", "verify", "verify_core"]

Progress: TypeAlias = bool | Callable[[VerifyReport], object] | None
VerifySteps: TypeAlias = Generator[Step | Emit, Any, None]

# Seconds to wait before differences are rechecked.
PAUSE_S = 0.3
MAX_DIFFERENCES = 100_000


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """The options of ``verify``.

    Raises:
        ValueError: an option is invalid.
    """

    server: ServerLike = None
    sample: str | float | None = None
    seed: int = 0
    exact: bool = False
    mirror: str | None = None
    differences: DifferenceTarget = None
    repair: bool = False
    max_differences: int = MAX_DIFFERENCES
    since: float | None = None
    timeout: float | None = 30.0
    progress: Progress = None
    max_reply_bytes: int | None = None
    receipt: StoredReceipt | None = None
    lineage: bool = False
    in_event_loop: bool = False

    def __post_init__(self) -> None:
        most = self.max_differences
        if not isinstance(most, int) or isinstance(most, bool) or most < 1:
            message = f" must be a number of 1 or more, not {most!r}"
            raise ValueError(Message(Hint("max_differences"), message))
        if self.since is not None and not (
            isinstance(self.since, (int, float)) and 0 <= self.since < math.inf
        ):
            message = f" must be seconds since 1970, as from time.time(), not {self.since!r}"
            raise ValueError(Message(Hint("since"), message))
        if self.since is not None and self.since > time.time():
            message = f" is in the future: {datetime.fromtimestamp(self.since):%Y-%m-%d %H:%M:%S}"
            raise ValueError(Message(Hint("since"), f"{message}; pass the start time of the load"))
        if self.mirror is not None:
            Mirror(self.mirror)
        for option, what in (("mirror", "all keys"), ("exact", "the contents of each key")):
            if self.share is not None and getattr(self, option):
                message = f" needs all rows, to know {what}; leave out "
                raise ValueError(Message(Hint(option), message, Hint("sample")))

    @property
    def share(self) -> float | None:
        """The share of rows to compare; None for all rows."""
        return share_of(self.sample)


@public
def verify(
    data: Data | None = None,
    template: TemplateLike = None,
    server: ServerLike = None,
    *,
    sample: str | float | None = None,
    seed: int = 0,
    exact: bool = False,
    mirror: str | None = None,
    differences: DifferenceTarget = None,
    repair: bool = False,
    max_differences: int = MAX_DIFFERENCES,
    since: float | None = None,
    nulls: Nulls = "auto",
    timeout: float | None = 30.0,
    progress: Progress = None,
    default: Callable[[Any], Any] | None = None,
    max_reply_bytes: int | None = None,
    receipt: str | os.PathLike[str] | None = None,
    lineage: bool = False,
) -> VerifyReport:
    """Compare the data in Redis or Valkey with its source.

    Pass the source and the template of a load. Each command is converted to a read of its values:
    HSET to HMGET, SET to GET, SADD to SMISMEMBER, ZADD to ZMSCORE, RPUSH to LRANGE, JSON.SET to
    JSON.GET. Nothing is written without ``repair``, and any tool may have loaded the data. The
    server may be a replica, or any node of a cluster, whose primaries are all read.

    Only the last write to a value is compared. Differences are rechecked at the end; values that no
    longer differ, because another client wrote meanwhile, are counted separately.

    Args:
        data, template, server, nulls, timeout, default: as for ``mass_insert``. The outcome of each
            command must depend only on its arguments: SET, HSET, SADD, ZADD, RPUSH, LPUSH,
            JSON.SET, DEL, HDEL, SREM, ZREM, EXPIRE and their variants, without options such as NX.
            The source must contain all items of a list.
        sample: compare only a share of the rows, such as ``"1%"`` or 0.01. The report then
            estimates the maximum share of all rows that differ.
        seed: each seed selects a different sample of the same size.
        exact: also report fields and members that are not in the source. Extra list items are
            always reported, except in a sample. ``exact`` needs 16 to 64 bytes of memory for each
            key, and for each item of keys that several rows write.
        mirror: a pattern of keys, such as ``"user:*"``: also report keys of this pattern that the
            source does not name. With ``exact``, this checks what ``mass_insert(mirror=)`` leaves.
            Needs 32 to 64 bytes of memory for each key of the source.
        differences: where to write differences at the end: the path of a JSON Lines file, or a
            callable that receives each Difference.
        repair: rewrite the values that differ, delete values that the source deletes, and recheck
            these values. Refused for RPUSH and LPUSH, which would duplicate items. Not repaired:
            extra values that only ``exact`` finds; keys of the wrong type, such as a string instead
            of a hash, and their times to live; the later commands of a row that writes such a key.
        max_differences: stop comparing after this number of differences; each needs about 1 kB of
            memory, plus the sizes of its key and values. If a later row overwrites a value, the
            value's difference counts until that row is compared, so a source that writes many keys
            repeatedly may need a higher limit.
        since: when the load began, in seconds since 1970, as returned by ``time.time()``. With
            ``since``, keys may have expired, and a time to live must not be shorter than the time
            to live in the source minus the time since the load began. By default, a time to live
            may be shorter than the source's, but not longer.
        progress: True for a progress bar on the terminal, or a callable that receives the live
            VerifyReport.
        max_reply_bytes: maximum bytes of a reply, which has up to 1,000 values; a larger reply is
            an error. None for 512 MiB.
        receipt: the path of a load's receipt: the source, ``template`` and ``nulls`` are read from
            it; the default of ``server`` is the load's server, and the default of ``since`` its
            start. A source that can't be read again from its path must be passed as ``data``. If
            the server needs a password, pass ``server``, or set ``REDIS_URL`` to its URL.
        lineage: send the result as OpenLineage events, as for ``mass_insert``, but as a run of its
            own, which reads the source and the keys.

    Returns:
        The report, with counts of rows, values, and differences by kind; its ``same`` is True if no
        differences remain.

    Raises:
        EncodeError, TemplateError: as in ``mass_insert``, or a command can't be verified.
        CommandError: the server refuses a read for a reason other than the type of a key.
        TypeError: ``differences`` is neither a path nor a plain function.
        ValueError: an option is invalid, ``repair`` was used with lists, or the receipt is damaged
            or from a load that is not complete.
        TransportError, TransportTimeout: as in ``mass_insert``.
        SourceError: the source has changed since the load of the receipt.
        OSError: the differences file exists, or can't be written.
        ImportError: ``lineage`` is given, and its package is not installed.

        The ``report`` attribute of an exception that is raised during the comparison, or while the
        differences are written, is the incomplete report.

    Each list needs 32 bytes of memory to count its items, and about 300 more until its last row;
    each expired key needs 32 bytes. There are two limitations. If rows remove all items of a key,
    so that the key loses its time to live, and later rows add items, a difference is reported. If
    a JSON.SET has a path that may match several parts of a document, the document is not compared
    completely; ``stopped`` then says so.
    """
    given = with_receipt(locals())
    options = VerifyOptions(**arguments_of(VerifyOptions, given))
    template = as_template(given["template"])
    encoding = Options(nulls=given["nulls"], timeout=timeout, default=default)
    chunks = ReadChunks(as_source(given["data"], template), template, encoding)
    return run(verify_core(chunks, options))


def with_receipt(given: dict[str, Any]) -> dict[str, Any]:
    """Complete the arguments of ``verify()`` from the receipt, if there is one."""
    path = given["receipt"]
    return given if path is None else read_receipt(path).arguments(given)


def verify_core(chunks: ReadChunks, options: VerifyOptions) -> Generator[Any, Any, VerifyReport]:
    """Return the core of a verification.

    Args:
        chunks: the source; closed at the end.
        options: the options.
    """
    if not options.lineage:
        return _verifying(chunks, options)
    try:
        from ..lineage import VerificationLineage
        from ..receipt import source_of

        server = Server(options.server, READING)
        lineage = VerificationLineage(source_of(chunks.data), server, chunks.template)
    except BaseException:
        chunks.close()
        raise
    return wrap(_verifying(chunks, options), lineage.ending)


def _verifying(chunks: ReadChunks, options: VerifyOptions) -> Generator[Any, Any, VerifyReport]:
    verification = Verification(chunks, options)
    with closing(chunks), difference_writer(options.differences) as write:
        try:
            yield from verification.run()
        except BaseException as error:
            if isinstance(error, Exception):
                yield from locating(chunks.data, [error])
                yield from verification.locate_core()
            verification.end_early(error)
            raise
        verification.conclude()
        try:
            for each in verification.differences():
                write(each)
        except BaseException as error:
            error.report = verification.report  # type: ignore[attr-defined]
            raise
    return verification.report


def check_source(chunks: ReadChunks, options: VerifyOptions) -> None:
    """Refuse commands that can't be verified or repaired, if they are known in advance."""
    names = check_verifiable(chunks.data, chunks.template)
    if options.mirror is not None:
        check_mirrored(chunks.data, chunks.template)
    lists = sorted({"RPUSH", "LPUSH"}.intersection(names))
    if options.repair and lists:
        message = (
            f" can't be used with {lists[0]}: items would be duplicated; delete the lists that "
            "differ, and load them again"
        )
        raise ValueError(Message(Hint("repair", True), message))


class Verification:
    """One verification: its comparison, and the differences found."""

    def __init__(self, chunks: ReadChunks, options: VerifyOptions) -> None:
        self.options = options
        self.report = VerifyReport(sample=options.share)
        # What was not done if an error occurs now; the report's ``stopped``.
        self._undone = "not all rows were compared, and no differences were rechecked"
        self._chunks = chunks
        self._server = Server(options.server, READING)
        self._found = Differences(options.max_differences)
        self._comparison = self._new_comparison(self._found, exact=options.exact)
        self._named = SourceKeys()
        self._unnamed: list[bytes] = []  # keys of ``mirror`` that the source does not name
        if options.mirror is not None:
            chunks.observe(self._named.see)
        chunks.planner = ReadPlanner(
            self._comparison, share=options.share or 1.0, seed=options.seed, exact=options.exact,
            repair=options.repair, replaces=getattr(chunks.template, "replaces", False),
        )  # fmt: skip
        receipt = options.receipt
        self._digest = None if receipt is None else receipt.digest(chunks.data)
        self._started = time.monotonic()
        # The differences that the recheck has confirmed.
        self._differing: list[Candidate] = []
        self._lines: dict[int, int] = {}  # line of each row, if known

    def _new_comparison(self, differences: Differences, **flags: bool) -> Comparison:
        since = -1.0 if self.options.since is None else self.options.since
        max_bytes = self.options.max_reply_bytes
        return Comparison(differences, since=since, max_reply_bytes=max_bytes, **flags)

    def run(self) -> VerifySteps:
        """Compare, recheck, repair, and find the lines of the rows that differ."""
        yield Pull(partial(check_source, self._chunks, self.options), self._chunks.blocks)
        digest, receipt = self._digest, self.options.receipt
        if digest is not None and receipt is not None:
            digest.start(self._chunks)
            if digest.over == "files":
                yield Blocking(partial(receipt.check, digest), digest.stop)
        progress: Any = self.options.progress
        if callable(progress):
            progress = partial(self._call_with_report, progress)
        with reporting(progress, self._chunks.data) as show:
            yield from self._compare(self._comparison, self._chunks, show)
        if digest is not None and receipt is not None and digest.over == "commands":
            receipt.check(digest)
        self._undone = "not all differences were rechecked"
        yield from self._recheck_all()
        if self.options.mirror is not None and not self._comparison.full:
            self._undone = "not all keys were compared with the source"
            yield from self._find_unnamed(self.options.mirror)
        if self.options.repair:
            self._undone = "not all differences were repaired and rechecked"
            yield from self._repair()
        yield from self.locate_core()

    def _compare(
        self, comparison: Comparison, chunks: ReadChunks, show: Show | None = None
    ) -> VerifySteps:
        options = self.options
        core = VerifyCore(self._server, options.timeout, comparison, options.max_reply_bytes, show)
        return compare_core(core, chunks)

    def _call_with_report(self, function: Callable[[VerifyReport], object], _: Report) -> None:
        function(self._update_report())

    def _update_report(self) -> VerifyReport:
        report, comparison = self.report, self._comparison
        writer = getattr(self._chunks, "writer", None)  # missing until the source is open
        report.rows = 0 if writer is None else writer.rows
        report.rows_compared, report.values = comparison.rows, comparison.values
        report.seconds = time.monotonic() - self._started
        return report

    def _recheck_all(self) -> VerifySteps:
        if self._comparison.full:
            self._found.counts.clear()
        first = self._found.candidates()
        if first:
            yield Blocking(partial(time.sleep, PAUSE_S))
        second = yield from self._recheck(first)
        self._differing, self.report.written_meanwhile = apply_recheck(first, second)

    def _recheck(self, some: Sequence[Candidate]) -> Generator[Step | Emit, Any, list[Candidate]]:
        """Compare values again; return the differences, whose rows are indexes in ``some``."""
        differences = Differences(len(some) + 1, sys.maxsize)
        if some:
            comparison = self._new_comparison(differences, recheck=True)
            chunks = ReadChunks([each.command() for each in some], None, Options())
            chunks.planner = ReadPlanner(comparison, recheck=True)
            yield from self._compare(comparison, chunks)
        return [*differences]

    def _find_unnamed(self, glob: str) -> VerifySteps:
        """Find keys of a pattern that the source does not name, and that still exist."""
        scan = Scan(self._server.requiring(optional_commands=None), self.options.timeout, glob)
        found = yield Blocking(partial(self._scan_unnamed, scan, glob), scan.disconnect)
        if found:
            yield Blocking(partial(time.sleep, PAUSE_S))
        self._unnamed = yield Blocking(partial(self._existing, found))
        self.report.written_meanwhile += len(found) - len(self._unnamed)

    def _scan_unnamed(self, scan: Scan, glob: str) -> list[bytes]:
        """Return the keys that the source does not name, up to the maximum of differences."""
        found: dict[bytes, None] = {}
        with closing(scan.pages()) as pages:
            for key in chain.from_iterable(pages):
                if key not in self._named and not key.startswith(OWN_KEYS):
                    found[key] = None
                    if len(found) + len(self._differing) >= self.options.max_differences:
                        self.report.stopped = f"not all keys that match {glob} were compared"
                        break
        return [*found]

    def _existing(self, keys: list[bytes]) -> list[bytes]:
        """Return the keys that exist."""
        found = []
        replies = replies_by_key(keys, "EXISTS {0}", self._server, self.options.timeout)
        with closing(replies):
            for key, reply in replies:
                if isinstance(reply, CommandError):
                    raise reply
                if reply:
                    found.append(key)
        return found

    def _repair(self) -> VerifySteps:
        """Rewrite the values that differ, and recheck them.

        Then repair each time to live whose key and row have no other remaining differences.
        """
        options, some = self.options, self._differing
        left = set(range(len(some)))
        errors: Counter[str] = Counter()
        for times in (False, True):
            others = [some[at] for at in left if times and some[at].group not in ("time", "count")]
            keys = {each.key for each in others}
            rows = {each.row for each in others}
            chosen = [
                each for each in repairable(some)
                if (each.group == "time") == times and each.key not in keys and each.row not in rows
            ]  # fmt: skip
            if not any(each.repair_command() for each in chosen):
                continue
            repairs = yield from repair_core(
                chosen, options.server, options.timeout, in_event_loop=options.in_event_loop
            )
            errors.update(repairs.errors_by_code)
            left = {each.row for each in (yield from self._recheck(some))}
        self.report.repair_errors = dict(errors)
        self._differing = [
            replace(each, repaired=number not in left) for number, each in enumerate(some)
        ]

    def locate_core(self) -> VerifySteps:
        rows = {each.row for each in self._differing}
        self._lines = yield from finding_lines(self._chunks.data, rows)

    def conclude(self) -> None:
        report, found = self._update_report(), self._found
        rows = set()
        for each in self.differences():
            report.add(each)
            rows.add(each.row)
        rows.discard(None)
        report.rows_differing = len(rows)
        report.unrepaired = report.differing - report.repaired if self.options.repair else None
        limit = Hint("max_differences", ...)
        if self._comparison.full:
            message = f"no values were compared after {len(found):,} differed (a larger "
            report.stopped = Message(message, limit, " compares more)")
        elif found.unknown_documents:
            report.stopped = (
                f"{counted(found.unknown_documents, 'document')} not fully compared: later rows "
                "write unknown parts of them (paths with a *, .. or ?)"
            )
        elif found.omitted_keys:
            message = f"{found.omitted_keys:,} more keys have items that the source does not name "
            report.stopped = Message(f"{message}(a larger ", limit, " reports more)")
        # Values that were not compared would bias the sample.
        if report.sample is not None and report.rows and not report.stopped:
            report.at_most = max_share(len(rows), report.rows_compared, report.rows)

    def end_early(self, error: BaseException) -> None:
        """Attach the incomplete report to an exception."""
        self._found.counts.clear()
        self._differing = self._differing or self._found.candidates()
        self.conclude()
        self.report.at_most = self.report.unrepaired = None
        self.report.stopped = self._undone
        if self._comparison.replies or getattr(error, "report", None) is not None:
            error.report = self.report  # type: ignore[attr-defined]

    def differences(self) -> Iterator[Difference]:
        """Yield the differences, in the order of the source.

        The time to live of a missing key is not a separate difference.
        """
        missing = missing_items(self._differing)
        place = place_of(self._chunks.data)
        for each in self._differing:
            if each.group == "time" and each.kind == "missing" and each.key in missing:
                continue
            file, row_in_file = (None, None) if place is None else place(each.row)
            named = each.group not in ("value", "time", "count")
            yield Difference(
                row=each.row,
                key=each.key,
                field=each.name if named else None,
                kind=each.kind,
                wanted=each.wanted,
                found=None if each.group == "time" and each.found < 0 else each.found,
                found_bytes=each.size,
                changed=each.changed,
                repaired=each.repaired,
                file=file,
                row_in_file=row_in_file,
                line=None if place is None else self._lines.get(each.row),
            )
        for key in self._unnamed:
            yield Difference(None, key, None, "extra", None, None)
