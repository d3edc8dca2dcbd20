"""Predict what a copy would do, without writing anything."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from ...encode.payload.restorer import Restorer
from ...outcome.errors import CommandError, SourceError, TransportError
from ...outcome.messages import Hint, Message, message_of, shown_argument
from ...outcome.report import Displayed, counted, size_text
from ...replies.iter_replies import iter_replies
from ...replies.scan import SCAN_COUNT, Scan
from ...server.answers import Answers
from ...server.preflight import RESTORE, Requirements
from ...server.reply_parser import parse_info
from ...server.settings import Server, ServerLike, as_server
from ..dry_run import busy_keys, full
from ..inquiry import Inquiry, inquire, inquire_each, merged
from ..server_warnings import Expected, Place, uses_of, warnings_of
from .by_value import LENGTHS, Values, only_dumped
from .options import CopyOptions
from .server_entries import ServerEntries, databases_of, primaries_of

__all__ = ["CopyPlan", "plan_copy"]

SAMPLE_KEYS = 1_000
# No more payloads are read after this number of bytes.
SAMPLE_BYTES = 64 << 20
# The sample ends after this number of consecutive SCAN pages without a matching key.
EMPTY_PAGES = 1_000
# The types of stored values. Source: RDB_TYPE_* in rdb.h of Redis and Valkey.
STRING, MODULE = 0, 7
ENCODINGS = {
    STRING: "string", 1: "list", 2: "set", 3: "zset with scores as text", 4: "hash", 5: "zset",
    MODULE: "value of a module", 9: "hash as a zipmap", 10: "list as a ziplist",
    11: "set as an intset", 12: "zset as a ziplist", 13: "hash as a ziplist",
    14: "list as ziplists", 15: "stream, version 1", 16: "hash as a listpack",
    17: "zset as a listpack", 18: "list as listpacks", 19: "stream, version 2",
    20: "set as a listpack", 21: "stream, version 3", 22: "hash with times to live of fields",
    24: "hash with times to live of fields",
    25: "hash with times to live of fields, as a listpack",
}  # fmt: skip
# A module's type is 9 letters of 6 bits each, and 10 bits of a version. Source: module.c.
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
# Part of the text of NOPERM errors, without the error code.
NOPERM = "has no permissions"
NO_SNAPSHOT = (
    "SCAN is no snapshot: keys that are written to during the copy may be outdated in the target, "
    "and keys that are created meanwhile may be missing."
)


@dataclass(repr=False)
class CopyPlan(Displayed):
    """What a copy would do: the result of ``copy(dry_run=True)``, as the report's ``plan``.

    Attributes:
        source, target: version and address of the server; empty if the server can't be used.
        keys: number of keys to copy; None if unknown.
        keys_basis: how ``keys`` was counted or estimated.
        sample_keys: number of keys in the sample, whose values were read.
        sample_bytes: bytes of the payloads of the sample.
        bytes: estimated bytes of all payloads; None if unknown.
        encodings: number of keys of the sample by the type and encoding of their values.
        converted: like ``encodings``, but only keys whose values must be converted.
        expiries_dropped: number of fields of the sample whose time to live would be dropped.
        by_value: why values are read with the commands of their types instead of DUMP; empty if
            DUMP is used. Without DUMP, encodings and the size of payloads are unknown.
        in_parts: number of keys of the sample that are read and written in parts.
        refused: number of keys of the sample that can't be copied.
        modules: number of keys of the sample with values of modules, by the type of the value.
        existing: number of keys of the sample that the target has.
        memory: estimated memory in the target in bytes, from MEMORY USAGE of the sample in the
            source; None if unknown.
        used_memory, maxmemory, maxmemory_policy: of the target; None if unknown. A maxmemory of 0
            means no limit.
        source_user, target_user: the ACL users; None if unknown.
        dump_allowed, restore_allowed: whether the ACL allows DUMP in the source, and RESTORE in the
            target; None if unknown.
        notes: what to know before the copy, one sentence each.
        warnings: known faults of the target, and its forks during the copy, one sentence each.
        problems: the problems found, one sentence each.
    """

    source: str = ""
    target: str = ""
    keys: int | None = None
    keys_basis: str = ""
    sample_keys: int = 0
    sample_bytes: int = 0
    bytes: int | None = None
    encodings: dict[str, int] = field(default_factory=dict)
    converted: dict[str, int] = field(default_factory=dict)
    expiries_dropped: int = 0
    by_value: str = ""
    in_parts: int = 0
    refused: int = 0
    modules: dict[str, int] = field(default_factory=dict)
    existing: int = 0
    memory: int | None = None
    used_memory: int | None = None
    maxmemory: int | None = None
    maxmemory_policy: str | None = None
    source_user: str | None = None
    target_user: str | None = None
    dump_allowed: bool | None = None
    restore_allowed: bool | None = None
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return str(self.message)

    @property
    def message(self) -> Message:
        """The plan as text; the CLI replaces names of Python options with names of its own."""
        lines: list[str] = [f"From {self.source or 'unknown'} to {self.target or 'unknown'}"]
        if self.source:
            lines += self._sizes()
        for name, count in sorted(self.encodings.items(), key=lambda each: -each[1]):
            converted = self.converted.get(name, 0)
            made = f", {converted:,} to be converted" if converted else ""
            lines.append(f"{count:>7,} x {name}{made}")
        lines += [f"{count:>7,} x type {name} of a module" for name, count in self.modules.items()]
        if self.expiries_dropped:
            lines.append(f"Times to live of fields to be dropped: {self.expiries_dropped:,}")
        if self.in_parts:
            lines.append(f"Large keys, to be read and written in parts: {self.in_parts:,}")
        if self.by_value:
            text = "Values will be read by the commands of their types, not DUMP: "
            lines.append(f"{text}{self.by_value}")
        if self.target:
            lines.append(f"Keys that the target has: {self.existing:,} of {self.sample_keys:,}")
        lines.append(
            f"Allowed by the ACL: DUMP in the source{_user(self.source_user)}: "
            f"{ALLOWED[self.dump_allowed]}; RESTORE in the target{_user(self.target_user)}: "
            f"{ALLOWED[self.restore_allowed]}"
        )
        lines += self.notes
        lines += [Message("warning: ", each) for each in self.warnings]
        if self.problems:
            lines += ["Problems found:", *(Message("- ", each) for each in self.problems)]
        else:
            lines.append(f"No problems found in the sample of {counted(self.sample_keys, 'key')}.")
        first, *others = [*lines, "This was a dry run: nothing was written."]
        return Message(first, *(Message("\n", line) for line in others))

    def _sizes(self) -> list[str]:
        keys = "unknown" if self.keys is None else f"{self.keys:,}"
        size = "unknown" if self.bytes is None else f"about {size_text(self.bytes)}"
        memory = "unknown" if self.memory is None else f"about {size_text(self.memory)}"
        used = "unknown" if self.used_memory is None else size_text(self.used_memory)
        limit = f"of {size_text(self.maxmemory)}" if self.maxmemory else "with no maxmemory"
        return [
            f"Keys: {keys} ({self.keys_basis})",
            f"Bytes of the payloads: {size} (from a sample of {counted(self.sample_keys, 'key')} "
            f"with {size_text(self.sample_bytes)})",
            f"Memory in the target: {memory} (from MEMORY USAGE of the sample in the source); in "
            f"use: {used} {limit} ({self.maxmemory_policy or 'unknown policy'})",
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the plan as a dict for JSON."""
        return {"dry_run": True} | vars(self)


ALLOWED = {True: "yes", False: "no", None: "could not be checked"}


def _user(name: str | None) -> str:
    return f" for user {name}" if name else ""


def plan_copy(source: ServerLike, options: CopyOptions) -> CopyPlan:
    """Read a sample of the source, and check it against the target; write nothing."""
    planning = Planning(source, options)
    try:
        planning.check_source()
        planning.check_target()
        if planning.report.source:
            planning.read_sample()
            planning.compare()
    except (SourceError, CommandError, TransportError) as error:
        planning.report.problems.append(message_of(error))
    if not options.from_replica:
        planning.report.notes.append(NO_SNAPSHOT)
    return planning.report


class Planning:
    """Collects the contents of a CopyPlan."""

    def __init__(self, source: ServerLike, options: CopyOptions) -> None:
        self.report = CopyPlan()
        self._options = options
        self._entries = ServerEntries(source, options)
        self._target = as_server(options.server, Requirements(nodes=True))
        self._timeout = options.timeout
        self._restorer: Restorer | None = None
        self._answers: Answers | None = None  # of the target
        self._keys: list[bytes] = []

    def check_source(self) -> None:
        """Check that the source can be read, and count its keys."""
        entries, report = self._entries, self.report
        try:
            entries.open()
            answers = entries.server.ask(self._timeout)
        except (SourceError, TransportError) as error:
            report.problems.append(message_of(error))
            report.dump_allowed = False if NOPERM in report.problems[-1] else None
            return
        report.source = _name(entries.server, answers)
        self._find_keys(answers)

    def check_target(self) -> None:
        """Check that the target can be used, and supports RESTORE."""
        report = self.report
        try:
            answers = self._target.requiring(commands=(RESTORE,)).ask(self._timeout)
        except (CommandError, TransportError) as error:
            report.problems.append(message_of(error))
            report.restore_allowed = False if NOPERM in report.problems[-1] else None
            return
        report.target = _name(self._target, answers)
        self._answers = answers
        if self._entries.databases & databases_of(self._target, answers):
            try:
                self._options.check_same_database()
            except ValueError as error:
                report.problems.append(message_of(error))
        self._restorer = self._options.restorer(answers, self._entries.valkey)

    def _find_keys(self, answers: Answers) -> None:
        """Choose the keys of the sample, and count or estimate all keys."""
        report, nodes = self.report, 1 if answers.topology is None else len(answers.topology.nodes)
        pages, found, empty = 0, list[bytes](), 0
        match, kind = self._entries.match, self._entries.type
        scan = Scan(self._entries.server, self._timeout, match or "*", kind)
        with closing(scan.pages()) as found_pages:
            for page in found_pages:
                pages += 1
                found += page
                empty = 0 if page else empty + 1
                # Pages come from the nodes in turn, so wait for a page of each node.
                if (len(found) >= SAMPLE_KEYS and pages >= nodes) or empty == EMPTY_PAGES:
                    break
            else:
                report.keys, report.keys_basis = len(found), "counted"
        step = max(1, len(found) // SAMPLE_KEYS)
        self._keys = found[::step][:SAMPLE_KEYS]
        if report.keys is None:
            total = self._total(answers)
            report.keys, report.keys_basis = total, "from DBSIZE"
            if match is not None or kind is not None:
                share = min(1.0, len(found) / (pages * SCAN_COUNT))
                report.keys = round(total * share)
                report.keys_basis = (
                    f"estimated: {share:.2g} of the first {pages * SCAN_COUNT:,} keys of SCAN match"
                )

    def _total(self, answers: Answers) -> int:
        """Return the number of keys of the source."""
        servers = primaries_of(self._entries.server, answers)
        return sum(_reply("DBSIZE", server=each, timeout=self._timeout) for each in servers)

    def read_sample(self) -> None:
        """Read the sample's values: their encodings, sizes, and whether the target accepts them."""
        report, server = self.report, self._entries.server
        report.by_value = self._entries.by_value
        replies: Any = iter_replies(
            self._keys, "MEMORY USAGE {0}", server=server, on_error="collect",
            timeout=self._timeout,
        )  # fmt: skip
        sizes = [size if isinstance(size, int) else 0 for size in replies]
        errors: list[Any] = []
        if report.by_value:
            self._read_types(errors)
        else:
            limit = self._entries.limit
            pairs = zip(self._keys, sizes, strict=True)
            small = [key for key, size in pairs if size <= limit]
            report.in_parts = len(self._keys) - len(small)
            self._read_dumped(small, errors)
            report.sample_keys += report.in_parts
        report.refused = len(errors)
        if errors:
            found = f"{counted(len(errors), 'key')} of the sample can't be copied, the first: "
            report.problems.append(Message(found, message_of(errors[0])))
        if report.keys is not None and report.sample_keys:
            if not (report.by_value or report.in_parts):
                report.bytes = round(report.sample_bytes / report.sample_keys * report.keys)
            memory = [*filter(None, sizes)]
            if memory:
                report.memory = round(sum(memory) / len(memory) * report.keys)

    def _read_types(self, errors: list[Any]) -> None:
        """Count the keys by type, for values that are read without DUMP; collect errors."""
        types: Counter[str] = Counter()
        for each in Values(self._entries.server, self._timeout, 0).look(self._keys):
            if each.kind == b"none":
                continue
            self.report.sample_keys += 1
            types[each.kind.decode(errors="replace")] += 1
            if each.kind not in LENGTHS:
                errors.append(only_dumped(each))
        self.report.encodings = dict(types)

    def _read_dumped(self, keys: list[bytes], errors: list[Any]) -> None:
        """Read payloads, convert them for the target, and collect errors."""
        report = self.report
        encodings: Counter[str] = Counter()
        modules: Counter[str] = Counter()
        with closing(self._entries.dumps.lists(iter(keys))) as reading:
            replies = chain.from_iterable(reading)
            for key, expiry, dump in zip(keys, replies, replies, strict=False):
                if dump is None:
                    continue
                report.sample_keys += 1
                if isinstance(dump, bytes) and dump:
                    report.sample_bytes += len(dump)
                    name = ENCODINGS.get(dump[0], f"unknown type {dump[0]}")
                    encodings[name] += 1
                    if dump[0] == MODULE:
                        modules[module_type(dump)] += 1
                    self._convert(name, [expiry, dump], key, errors)
                if report.sample_bytes >= SAMPLE_BYTES:
                    break
        report.encodings, report.modules = dict(encodings), dict(modules)

    def _convert(self, name: str, replies: list[Any], key: bytes, errors: list[Any]) -> None:
        """Convert a value for the target, as the copy would."""
        restorer = self._restorer
        if restorer is None:
            return
        before, error = restorer.converted, restorer.error
        restorer.dumped_rows(replies, iter([key]))
        if restorer.converted > before:
            self.report.converted[name] = self.report.converted.get(name, 0) + 1
        if restorer.error is not error:
            errors.append(restorer.error)
        self.report.expiries_dropped = restorer.expiries_dropped

    def compare(self) -> None:
        """Ask both servers about permissions, and the target about its memory and keys."""
        report = self.report
        dumps = [(b"DUMP", key) for key in self._keys]
        source = inquire(dumps, self._entries.server.any_node(), timeout=self._timeout)
        report.source_user, report.dump_allowed = source.user, source.allowed
        if not report.by_value:
            report.problems += source.refused[:1]
        if not report.target:
            return
        nodes = self._ask_target()
        target = merged([inquiry for _, inquiry, _ in nodes])
        report.target_user, report.restore_allowed = target.user, target.allowed
        report.used_memory, report.maxmemory = target.used_memory, target.maxmemory
        report.maxmemory_policy = target.policy
        report.problems += [target.unreachable] if target.unreachable else target.refused[:1]
        for name, inquiry, share in nodes:
            part = "the data" if len(nodes) == 1 else f"the part for {name}"
            report.problems += full(part, "it", inquiry, round((report.memory or 0) * share))
        report.warnings += self._warnings(nodes)
        self._check_existing()
        if report.modules:
            self._check_modules()

    def _warnings(self, nodes: list[tuple[str, Inquiry, float]]) -> list[Message]:
        """Return the known faults and the forks of the target, given its nodes and their shares."""
        report, rate = self.report, self._options.rate
        keys, memory = report.keys or 0, report.memory or 0
        size = report.bytes or memory
        places = [
            Place(
                "" if len(nodes) == 1 else name, inquiry.info, inquiry.config,
                Expected.of(keys * share, size * share, memory * share, rate),
            )
            for name, inquiry, share in nodes
        ]  # fmt: skip
        uses = uses_of(("RESTORE", "DUMP"), None, self._options.durable)
        return warnings_of(places, uses, pause_saves=self._options.pause_saves)

    def _ask_target(self) -> list[tuple[str, Inquiry, float]]:
        """Return for each primary of the target: its name, its answers, its share of the slots."""
        commands = [(b"RESTORE", self._options.renamed(key), b"0", b"") for key in self._keys]
        assert self._answers is not None
        servers, shares = primaries_of(self._target, self._answers), [1.0]
        if self._answers.topology is not None:
            owned = Counter(self._answers.topology.slots)
            shares = [owned[at] / owned.total() for at in range(len(servers))]
        asked = inquire_each([commands] * len(servers), servers, timeout=self._timeout)
        return [*zip(map(str, servers), asked, shares, strict=True)]

    def _check_existing(self) -> None:
        keys = list(map(self._options.renamed, self._keys))
        replies: Any = iter_replies(
            keys, "EXISTS {0}", server=self._target.requiring(reading=True),
            on_error="collect", timeout=self._timeout,
        )  # fmt: skip
        pairs = zip(keys, replies, strict=True)
        existing = [shown_argument(key) for key, reply in pairs if reply == 1]
        self.report.existing = len(existing)
        if existing and self._options.exists == "error":
            self.report.problems.append(busy_keys(existing, grouped=False))

    def _check_modules(self) -> None:
        """Compare the modules of both servers, since a type does not name its module."""
        has, lacks = (
            set(parse_info(reply).get("modules", "").split())
            for reply in (
                _reply("INFO", "modules", server=each.any_node(), timeout=self._timeout)
                for each in (self._target, self._entries.server)
            )
        )
        lacks -= has
        keys = counted(sum(self.report.modules.values()), "key")
        text = f"{keys} of the sample: values of modules ({', '.join(self.report.modules)}), and "
        if not has:
            text += "the target has no modules; load them there, or copy other types with "
            self.report.problems.append(Message(text, Hint("type", ...)))
        elif lacks:
            self.report.notes.append(
                f"{text}the target has no module named {', '.join(sorted(lacks))}; check that its "
                f"modules ({', '.join(sorted(has))}) have these types"
            )


def module_type(payload: bytes) -> str:
    """Return the type of a module's value, as TYPE returns it."""
    number = int.from_bytes(payload[2:10], "big") >> 10
    return "".join(LETTERS[number >> 6 * at & 63] for at in reversed(range(9)))


def _name(server: Server, answers: Answers) -> str:
    product = "Valkey" if answers.valkey else "Redis"
    nodes = "" if answers.topology is None else f", {len(answers.topology.nodes)} primaries"
    return f"{product} {answers.version or 'of unknown version'} at {server}{nodes}"


def _reply(*command: str, server: Server, timeout: float | None) -> Any:
    [reply] = iter_replies([command], server=server, decode=True, timeout=timeout)
    return reply
