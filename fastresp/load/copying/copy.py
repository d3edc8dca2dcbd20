"""``copy()``: copy keys with their values and expiries to another server."""

from __future__ import annotations

import os
from asyncio import CancelledError
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Literal, TypeAlias

from ...encode.payload.restorer import Restorer
from ...outcome.messages import Hint, Message
from ...outcome.report import Report
from ...outcome.tracebacks import public
from ...server.options import (
    Checkpoint,
    Durable,
    MaxErrors,
    Progress,
    RateLimit,
    ReceiptPath,
    Rejects,
)
from ...server.preflight import Requirements
from ...server.settings import ServerLike, as_server
from ...sources.chunks import Chunks
from ...sources.files.paths import files_of
from ...sources.source import Entries
from ...transports.base import add_report
from ...transports.driver import Blocking, Steps, run, wrap
from ..load import Choose, Feature, Load
from ..mass_insert import choose, loading
from ..verifying.report import DifferenceTarget, difference_writer
from .changed_entries import ChangedEntries, Deleting
from .dry_run import plan_copy
from .following import Following
from .in_parts import InParts
from .options import CopyOptions, Delete
from .server_entries import ServerEntries, databases_of, names_of
from .snapshot_entries import ReplicaEntries, SnapshotEntries, is_snapshot
from .stored_copy import CopyCheckpoint, StoredFollowing
from .verification import CopiedKeys, Sample, Verification

__all__ = ["CopySource", "copy", "copying"]

CopySource: TypeAlias = ServerLike | os.PathLike[str]


class Copying(Feature):
    """Prepares the source of a copy for the target's version, and adds its counts to the report."""

    def __init__(self, entries: Entries, options: CopyOptions) -> None:
        self._entries = entries
        self._options = options
        self._restorer: Restorer | None = None

    def opening(self, load: Load) -> Steps[Report | None]:
        yield Blocking(self._entries.open)
        return None

    def connected(self, load: Load) -> Steps[None]:
        yield from ()
        assert load.transport is not None and load.transport.answers is not None
        answers = load.transport.answers
        if self._entries.databases & databases_of(load.transport.server, answers):
            self._options.check_same_database()
        unique = self._options.exists != "replace"
        self._restorer = self._options.restorer(answers, self._entries.valkey, unique)
        self._entries.prepare(self._restorer)

    def ended(self, load: Load) -> Steps[None]:
        yield from ()
        self._entries.close()
        load.report.unchanged += self._entries.unchanged
        if self._restorer is not None:
            load.report.gone += self._restorer.gone
            load.report.converted = self._restorer.converted
            load.report.expiries_dropped += self._restorer.expiries_dropped


def copying(source: CopySource, options: CopyOptions, choose: Choose) -> Steps[Report]:
    """Return the core of a copy; see ``Load.core()``."""
    if options.dry_run:
        return _planning(source, options)
    core = _whole_copy(source, options, choose)
    if options.receipt_path is None:
        return core
    from ..receipt import CopyReceipt

    files, server = list[str](), source
    if isinstance(source, os.PathLike) or is_snapshot(source):
        files, server = files_of(source), None
    kept = options.progress_kept
    receipt = CopyReceipt(
        options.receipt_path, server, files, options, None if kept is None else kept.name
    )
    return wrap(core, receipt.ending)


def _whole_copy(source: CopySource, options: CopyOptions, choose: Choose) -> Steps[Report]:
    """Return the core of a copy that is followed or verified, or neither."""
    if options.verify:
        return _copy_and_verify(source, options, choose)
    entries = _entries(source, options)
    if isinstance(entries, ReplicaEntries) and options.follow:
        return _copy_and_follow(entries, options, choose)
    return _copying(entries, options, choose)


def _copy_and_follow(
    entries: ReplicaEntries, options: CopyOptions, choose: Choose
) -> Steps[Report]:
    """Copy the snapshot, and then apply the source's later commands."""
    stored = None
    if options.progress_kept is not None:
        yield Blocking(partial(_check_other_server, entries, options))
        stored = StoredFollowing(options, entries.server.database)
    with closing(entries.stream) as stream:
        place = None if stored is None else (yield Blocking(stored.begin))
        if stored is not None and place is not None:
            report, database = Report("socket"), stored.database
            yield Blocking(partial(stream.open, place))
        else:
            report = yield from _copying(entries, options, choose)
            report.raise_for_errors()  # the target has no copy to keep up to date
            database = entries.database
        following = yield Blocking(partial(Following, stream, options, report, database, stored))
        try:
            return (yield Blocking(following.run, following.stop))  # type: ignore[no-any-return]
        except CancelledError as cancellation:
            add_report(cancellation, following.report, str(following.report))
            raise


def _check_other_server(entries: ReplicaEntries, options: CopyOptions) -> None:
    """Refuse to store the checkpoint in the source: the copy would follow its own writes."""
    target = as_server(options.server, Requirements(nodes=True))
    if entries.names() & names_of(target, target.ask(options.timeout)):
        text = "the source and the target are the same server, so each write of the checkpoint "
        advice = "would be another command to follow; leave out "
        raise ValueError(Message(text, advice, Hint("checkpoint")))


def _copying(entries: Entries, options: CopyOptions, choose: Choose) -> Steps[Report]:
    more: list[Feature] = []
    in_parts = InParts(entries, options) if isinstance(entries, ServerEntries) else None
    if options.delete:
        if not isinstance(entries, ServerEntries):
            text = " needs a server as the source, and SCAN"
            raise ValueError(Message(Hint("delete", True), text))
        more.append(Deleting(entries, options))
    if options.changed:
        entries = ChangedEntries(entries, options)
    chunks = Chunks(entries, options.template, options)
    more.append(Copying(entries, options))
    if options.progress_kept is not None and not options.follow:
        if not isinstance(entries, ServerEntries):
            text = "a copy of a snapshot, or of changed keys, can't be resumed; leave out "
            raise ValueError(Message(text, Hint("checkpoint")))
        more.append(CopyCheckpoint(entries, options))
    if in_parts is not None:
        more.append(in_parts)  # last, so that it finishes before the checkpoint is completed
    report = yield from loading(chunks, choose, *more)
    if options.on_error != "collect":  # the load has not checked the errors of keys in parts
        report.raise_for_errors()
    return report


def _entries(source: CopySource, options: CopyOptions) -> Entries:
    if isinstance(source, os.PathLike) or is_snapshot(source):
        if options.from_replica:
            raise ValueError(Message("a file is a snapshot already; omit ", Hint("from_replica")))
        return SnapshotEntries(source, options)
    if options.from_replica:
        return ReplicaEntries(source, options)
    return ServerEntries(source, options)


def _copy_and_verify(source: CopySource, options: CopyOptions, choose: Choose) -> Steps[Report]:
    """Copy; then read the source again, and compare it with the target."""
    with difference_writer(options.differences) as write:
        entries, sample = _entries(source, options), Sample(options.share)
        copied = CopiedKeys(options.share)
        entries.note(copied.note)
        report = yield from _copying(entries, options, choose)
        if report.stopped:
            return report
        # A server is read with SCAN, even if its snapshot was copied.
        entries = _entries(source, replace(options, from_replica=False))
        if isinstance(entries, ServerEntries):
            entries.choose(lambda key: sample.has(options.renamed(key)))
        target = as_server(options.server, Requirements(reading=True, nodes=True))

        def prepare() -> None:
            entries.open()
            entries.prepare(options.restorer(target.ask(options.timeout), entries.valkey))

        try:
            yield Blocking(prepare)
            # A resumed copy does not know which values earlier runs have copied.
            known = None if report.resumed_at else copied
            verification = Verification(entries, target, options, known, sample, write)
            report.verification = yield from verification.run()
        except BaseException as error:
            error.report = report  # type: ignore[attr-defined]
            raise
        return report


def _planning(source: CopySource, options: CopyOptions) -> Steps[Report]:
    """Return the core of a dry run: its report has only a ``plan``."""
    if isinstance(source, os.PathLike) or is_snapshot(source):
        text = " needs a server as the source; fastresp inspect shows what the file contains"
        raise ValueError(Message(Hint("dry_run", True), text))
    report = Report("")
    report.plan = yield Blocking(partial(plan_copy, source, options))
    return report


@public
def copy(
    source: CopySource,
    target: ServerLike = None,
    *,
    match: str | None = None,
    type: str | None = None,  # noqa: A002
    db: int | None = None,
    exists: Literal["error", "skip", "replace"] = "error",
    rename: str | None = None,
    field_ttl: Literal["keep", "drop"] = "keep",
    from_replica: bool = False,
    follow: bool = False,
    until_lag: int | None = None,
    dry_run: bool = False,
    changed: bool = False,
    delete: Delete = False,
    verify: bool = False,
    sample: str | float | None = None,
    differences: DifferenceTarget = None,
    on_error: Literal["raise", "collect", "stop"] = "raise",
    max_errors: MaxErrors = None,
    rejects: Rejects = None,
    rate_limit: RateLimit = None,
    connections: int = 1,
    max_payload_bytes: int | None = None,
    timeout: float | None = 30.0,
    progress: Progress = None,
    retry: Literal["never", "idempotent", "always"] | None = None,
    durable: Durable = "acknowledged",
    import_source: bool = False,
    pause_saves: bool = False,
    checkpoint: str | Checkpoint | None = None,
    receipt: ReceiptPath = None,
) -> Report:
    """Copy keys of all types, with their times to live, to another Redis or Valkey.

    Source and target may be single servers or clusters of different versions. Keys are found with
    SCAN, read with DUMP, and written with RESTORE. The target receives a value as the source stores
    it, unless the target does not know the value's encoding: then the value is converted. If the
    source refuses DUMP, or returns payloads that Redis does not know, values are read with the
    commands of their types, such as HSCAN; the report's ``by_value`` then says why.

    SCAN is no snapshot: keys that are written to during the copy may be outdated in the target, and
    keys that are created meanwhile may be missing. SCAN may also return a key twice, for example
    while the source resizes its table of keys. Unless ``exists`` is ``"replace"``, the first
    500,000 keys are remembered, and copied only once. If SCAN returns any other key twice, its
    second copy counts as a key that the target already has.

    Args:
        source: the server to read from, as for ``mass_insert``: a single server, which may be a
            replica, or any node of a cluster, whose primaries are all read. Or the path of an RDB
            file, whose name ends in ``.rdb``; or a pattern of such paths, to copy the files of all
            nodes of a cluster.
        target: the server or cluster to write to, as for ``mass_insert``.
        match: copy only keys that match this pattern of SCAN, such as ``"user:*"``.
        type: copy only keys of this type: ``"string"``, ``"hash"``, ``"list"``, ``"set"``,
            ``"zset"``, ``"stream"``, ``"json"``, or the name of a module's type.
        db: copy the keys of this database of the source; None for the database of the source's URL,
            or database 0 of a file. Keys are copied into the database of the target's URL.
        exists: what to do with a key that the target already has: ``"error"`` keeps the key, and
            reports the error BUSYKEY; ``"skip"`` keeps the key, and counts it in the report's
            ``existing``; ``"replace"`` replaces the key.
        rename: replace a prefix of keys: ``"old:* -> new:*"``. Keys without the old prefix keep
            their names. If such a key begins with the new prefix, a SourceError is raised, since a
            renamed key could replace it.
        field_ttl: what to do with the times to live of a hash's fields if the target does not
            support them: ``"keep"`` raises SourceError; ``"drop"`` drops these times to live, and
            leaves out fields that have expired.
        from_replica: whether to receive the source's snapshot as a replica does, with PSYNC,
            instead of using SCAN and DUMP. All keys are copied as they were at one moment. The
            source forks once, as it does for each new replica. In a cluster, the snapshots of the
            primaries are of slightly different moments, and slots must not move while the snapshots
            begin. Files in the temporary folder (``TMPDIR``) hold the part of the snapshots that
            the target has not received yet.
        follow: whether to apply the source's later commands after the snapshot, until Ctrl-C or
            ``until_lag``. Needs ``from_replica``, and all keys of the database. After a lost
            connection to the source, the copy reconnects. Whatever ``on_error`` and ``retry`` are,
            the copy ends with an exception at the first error reply, or at a command without an
            exact counterpart in the target, since the target would differ from then on. If the
            target is a cluster, the commands of a transaction are applied one by one, and commands
            with keys in several slots are refused, except for DEL, UNLINK and MSET. Redis before
            7.0 replicates relative times to live; these count from when a command is applied, as in
            a replica. A checkpoint can't be stored in the source itself.
        until_lag: end when the target is at most this number of bytes of commands behind; with 0,
            when all commands of the source are applied. For a cutover, first stop writes to the
            source.
        changed: copy only keys that the target lacks, or has with another value or time to live;
            the report's ``unchanged`` counts the keys that were left out. Needs
            ``exists="replace"``. Values are compared as DUMP returns them, so an equal value in
            another encoding is copied again.
        delete: True to delete, after the copy, the matching keys of the target that the source
            lacks; the report's ``deleted`` counts them. A callable receives the number of these
            keys, and returns whether to delete them. Nothing is deleted if no key of the source
            matches, or if the copy was stopped. The keys of checkpoints are not deleted.
        dry_run: write nothing; the report only has a ``plan``, a CopyPlan that predicts the copy
            from a sample of 1,000 keys.
        verify: after the copy, read the source again, and compare it with the target: the result is
            the report's ``verification``, a CopyVerifyReport. Keys that the source has changed
            since they were copied are counted and named separately, but after a resumed copy, they
            count as differences. Needs 8 bytes of memory per key.
        sample: verify only a share of the keys, such as ``"1%"`` or 0.01.
        differences: where to write the differences that were found, as for ``verify()``; at most
            10,000.
        on_error, max_errors, rejects, rate_limit, connections, timeout, progress, retry, durable:
            as for ``mass_insert``. ``rate_limit`` counts keys, or bytes of their payloads.
        import_source: as for ``mass_insert``: a target of Valkey 8.1 or later in import mode does
            not delete expired keys by itself. Without import mode, ``follow`` logs a warning: the
            target, like any server that is not a replica, loses a key that expires before the
            command that extends its time to live is applied.
        pause_saves: as for ``mass_insert``, on the target. With ``follow``, the target's settings
            are restored once the snapshot is copied.
        max_payload_bytes: a key that uses more memory than this in the source is read and written
            in parts; None for 33,554,432 (32 MiB). The parts are written to a temporary key, which
            is renamed at the end, so little memory is needed, and the target never has a part of
            the key. A source whose used memory is above this limit also runs MEMORY USAGE for each
            key, which costs about 18% more CPU time; a higher limit avoids this. A value whose
            length changes meanwhile is read again, and is an error after three attempts; after
            other changes, the copy may be a state that the value never had. Keys whose copy in
            parts fails count as errors, but are not written to ``rejects``. Keys of files and
            snapshots are always copied as a whole.
        checkpoint: a ``Checkpoint``, or its name: every 2 seconds, the remaining part of the scan
            is stored in the target, so that the copy can resume after any failure. Keys copied
            since the last store are copied again, so ``exists`` must be ``"skip"`` or
            ``"replace"``. If a node of the source was restarted meanwhile, all its keys are scanned
            again. With ``follow``, the target stores the replication offset with each block of
            commands, and a resumed copy continues at this offset: each command is applied exactly
            once.
        receipt: the path of a JSON file to write at the end, even after an exception: source and
            target with their versions, the options, the counts, the errors by code, the result of
            ``verify``, and the times. Only an earlier receipt or an empty file is replaced.

    Returns:
        The report of the load into the target, which counts a row and a command for each key.
        ``gone`` counts keys that were deleted or had expired before they were read; ``in_parts``,
        keys that were copied in parts; ``converted``, values whose encoding the target does not
        know; ``expiries_dropped``, dropped times to live. ``by_value`` says why DUMP was not used.

    Raises:
        SourceError: the source can't be read, or a value is damaged or can't be stored in the
            target. All keys that were read earlier were copied, except for large keys that a note
            of the exception counts as not copied.
        LoadErrors: the target refused keys, for example because they exist.
        TransportError, TransportTimeout: the target can't be used, or its connection was lost.
        CheckpointError: the checkpoint exists, and ``resume`` is not set; or it is of another copy.
        ValueError: an option is invalid, or source and target are the same database.
        others: as in ``mass_insert``.
    """
    return run(copying(source, CopyOptions.of(locals()), choose))
