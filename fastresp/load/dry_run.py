"""Predict what a load would do, without changing anything on the server."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..encode.payload.format import Format
from ..encode.payload.serializer import Serializer
from ..encode.row_key import RowKeys
from ..encode.template import Template, check_creating, check_replacing
from ..outcome.errors import CommandError, FastrespError, TransportError
from ..outcome.messages import Hint, Message, message_of
from ..outcome.report import counted, size_text
from ..replies.locating import naming_place
from ..resp.buffer import Chunk
from ..resp.merge import Merger
from ..resp.shown import HEAD_BYTES, shown_command
from ..resp.slots import Rules
from ..resp.split import arguments
from ..server.answers import Answers
from ..server.cluster import Topology
from ..server.options import ACKNOWLEDGED, Merge, Nulls, Options, Rate, Replicate, Serialize
from ..server.preflight import RESTORE, Requirements, commands_that_replace
from ..server.settings import Server, ServerLike
from ..sources.chunks import replacer, serializer
from ..sources.source import Encoder, encoding, known_rows, released
from .inquiry import (
    Command,
    Inquiry,
    SlotShares,
    inquire,
    inquire_each,
    merged,
    slot_shares,
)
from .memory_estimate import Estimate, Model
from .progress import fraction_read
from .replication import check_target
from .server_warnings import Expected, Place, uses_of, warnings_of

if TYPE_CHECKING:
    from .mirror import Stale

__all__ = ["DryRun", "Inquiry", "Node", "Sample", "busy_keys", "dry_run", "full", "take_sample"]

SAMPLE_ROWS = 1_000
# The sample is kept in memory, so it ends early at this size.
SAMPLE_BYTES = 16 << 20
# Seconds to count rows if the source does not know its number of rows.
COUNT_SECONDS = 0.5
COMMANDS_SHOWN = 5
KEYS_SHOWN = 3
PROBLEMS_SHOWN = 3


@dataclass
class Sample:
    """The first commands of a source.

    Attributes:
        rows: number of rows in the sample.
        whole: whether the sample is the whole source.
        total_rows: about how many rows the source has; None if unknown.
        commands: the arguments of each command.
        row_of: the row number of each command.
        size: number of bytes of the commands as RESP.
        shown: the first commands, as redis-cli would show them.
        fault: message of the first error: a command can't be serialised, or a row that was read
            to estimate ``total_rows`` can't be encoded; empty if there was no error.
    """

    rows: int = 0
    whole: bool = False
    total_rows: int | None = None
    commands: list[Command] = field(default_factory=list)
    row_of: list[int] = field(default_factory=list)
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
class Node:
    """What a load would do to one primary of a cluster.

    Attributes:
        server: host and port.
        inquiry: the node's answers about the sample commands that are routed to the node.
        share: share of the load's commands, from 0 to 1.
        memory: bytes that the node's part of the load needs; see DryRun.estimate.
    """

    server: str
    inquiry: Inquiry
    share: float = 0.0
    memory: int = 0


@dataclass
class DryRun:
    """What a load would do.

    Attributes:
        sample: the first commands of the load.
        inquiry: the server's answers about the sample; in a cluster, all nodes' combined answers.
        estimate: the memory that the whole load needs; if the number of rows is unknown, the
            memory that the sample needs.
        problems: the problems found, one sentence each.
        warnings: known faults of the server, and forks during the load, one sentence each.
        nodes: the primaries of a cluster; empty for a single server.
        refused_rows: number of rows of the sample that can't be sent to a cluster.
        stale: what ``mirror`` would delete; None without it.
    """

    sample: Sample
    inquiry: Inquiry
    estimate: Estimate
    problems: list[str]
    warnings: list[Message] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    refused_rows: int = 0
    stale: Stale | None = None

    @property
    def rights_unknown(self) -> bool:
        """Whether the server was reached, but the user's permissions could not be checked."""
        asked = not self.inquiry.unreachable and bool(self.sample.commands)
        return asked and self.inquiry.allowed is None

    @property
    def commands(self) -> int | None:
        """About how many commands the load has; None if unknown."""
        times = self.sample.times
        return None if times is None else round(len(self.sample.commands) * times)

    @property
    def size(self) -> int | None:
        """About how many bytes the commands have in mode "commands"; None if unknown."""
        times = self.sample.times
        return None if times is None else round(self.sample.size * times)


def dry_run(
    data: Any,
    template: Template | None,
    server: ServerLike = None,
    *,
    nulls: Nulls = "auto",
    timeout: float | None = 30.0,
    mode: Merge | Serialize | Replicate | None = None,
    durable: str | int = ACKNOWLEDGED,
    rate: Rate | None = None,
    pause_saves: bool = False,
) -> DryRun:
    """Encode the first 1,000 rows and check them against the server, without changing the server.

    Args:
        data, template, server, nulls, timeout: as for ``mass_insert``. The dry run consumes rows
            from the source.
        mode, durable, rate, pause_saves: as in ``Options``.

    Raises:
        EncodeError, TemplateError: a row of the sample can't be encoded, or the template can't be
            serialised.
    """
    serialize = mode if isinstance(mode, Serialize) else None
    replicate = isinstance(mode, Replicate)
    if serialize or replicate:
        check_creating(template, file=replicate)
    if isinstance(mode, Merge) and mode.exists == "replace":
        check_replacing(template)
    sample = take_sample(data, template, nulls=nulls, serialize=serialize is not None)
    where = Server(server, Requirements(nodes=True))
    parts: SlotShares | None = None
    nodes: list[Node] = []
    try:
        answers = where.ask(timeout)
        where = where.requiring(nodes=False)  # each node is asked separately below
        if answers.topology is None:
            inquiry = inquire(sample.commands, where, timeout=timeout)
        else:
            rules = Rules(answers.positions)
            parts = slot_shares(
                sample.commands, sample.row_of, answers.topology, rules, PROBLEMS_SHOWN,
                RowKeys(template),
            )  # fmt: skip
            nodes = _ask_nodes(where, answers, parts, timeout)
            inquiry = merged([node.inquiry for node in nodes])
    except TransportError as error:
        inquiry = Inquiry(unreachable=error.args[0])
    else:
        inquiry.rejected = _rejected(template, server, timeout, mode)
    if serialize or replicate:  # the load creates whole keys
        inquiry.wrong_types = []
    if not serialize or serialize.exists != "error":
        inquiry.existing = []
    times = sample.times or 1.0
    estimate = Model(inquiry.limits).run(sample.commands, times)
    if parts is not None and answers.topology is not None:
        _share(nodes, parts, answers.topology, estimate, times)
    problems = _problems(sample, inquiry, estimate, nodes, parts)
    refused = 0 if parts is None else parts.refused_rows
    found = DryRun(sample, inquiry, estimate, problems, nodes=nodes, refused_rows=refused)
    if not replicate:  # the server's data is replaced, and it does not run the commands
        names = {command[0].decode(errors="replace").upper() for command in sample.commands}
        uses = uses_of(names, mode, durable)
        found.warnings = warnings_of(_places(found, rate), uses, pause_saves=pause_saves)
    return found


def _places(found: DryRun, rate: Rate | None) -> list[Place]:
    """Return the server or the nodes of the cluster, with their parts of the load."""

    def place(name: str, inquiry: Inquiry, share: float, memory: int) -> Place:
        load = None
        if found.commands is not None and found.size is not None:
            load = Expected.of(found.commands * share, found.size * share, memory, rate)
        return Place(name, inquiry.info, inquiry.config, load)

    if not found.nodes:
        return [place("", found.inquiry, 1.0, found.estimate.memory)]
    return [place(node.server, node.inquiry, node.share, node.memory) for node in found.nodes]


def _ask_nodes(
    server: Server, answers: Answers, parts: SlotShares, timeout: float | None
) -> list[Node]:
    """Ask each primary about its commands. Also ask the first primary about ``parts.refused``."""
    assert answers.topology is not None
    servers = server.nodes_of(answers.topology.nodes, 1)
    commands = [*parts.commands]
    commands[0] = commands[0] + parts.refused
    results = inquire_each(commands, servers, timeout=timeout)
    return [Node(str(where), each) for where, each in zip(servers, results, strict=True)]


def _share(
    nodes: list[Node], parts: SlotShares, topology: Topology, estimate: Estimate, times: float
) -> None:
    """Divide the commands and the memory of a load among the nodes."""
    counts = [float(len(commands)) for commands in parts.commands]
    sizes = [
        float(Model(node.inquiry.limits).run(commands, times).memory)
        for node, commands in zip(nodes, parts.commands, strict=True)
    ]
    for node, share in zip(nodes, parts.shares(topology, counts, times), strict=True):
        node.share = share
    for node, share in zip(nodes, parts.shares(topology, sizes, times), strict=True):
        node.memory = round(estimate.memory * share)


def take_sample(
    data: Any, template: Template | None, *, nulls: Nulls = "auto", serialize: bool = False
) -> Sample:
    """Encode the first rows of a source.

    Args:
        data, template, nulls: as for ``mass_insert``.
        serialize: whether to check that the commands can be serialised.
    """
    encoder, source = encoding(data, template, Options(nulls=nulls))
    sample = Sample(whole=True, total_rows=known_rows(data))
    # The payloads are discarded, so their version does not matter.
    serializer = Serializer(Format(10), max_bytes=SAMPLE_BYTES, merger=Merger(1, 1))
    with released(source), naming_place(data):
        chunks = encoder.chunks(source)
        for chunk in chunks:
            if serialize:
                serializer.serialize(chunk)
            _take_chunk(chunk, sample)
            if sample.whole and encoder.rows > SAMPLE_ROWS:
                sample.whole, sample.rows = False, SAMPLE_ROWS  # the later rows had no commands
            if not sample.whole:
                break
        if sample.whole:
            sample.rows = sample.total_rows = encoder.rows
        try:
            with naming_place(data):
                serializer.finish()
                refused = RowKeys(template).of_failing(serializer)
                if refused is not None:
                    raise refused
                if sample.total_rows is None and fraction_read(data) is not None:
                    sample.total_rows = _count_on(chunks, encoder, data)
        except FastrespError as error:
            sample.fault = message_of(error)
    return sample


def _count_on(chunks: Iterable[Chunk], encoder: Encoder, data: Any) -> int | None:
    """Count more rows, for under a second, and estimate the source's total number of rows.

    Use the source's own estimate from the lengths of its lines, if there is one. Otherwise divide
    the rows counted between two moments by the share of the source read between these moments. The
    first moment is not the start: a source reads ahead of the rows it yields, by 15 MB for CSV.
    """
    begin = time.monotonic() + COUNT_SECONDS / 2
    deadline = begin + COUNT_SECONDS
    rows, part = 0, None
    for _ in chunks:
        now = time.monotonic()
        if part is None and now >= begin:
            rows, part = encoder.rows, fraction_read(data) or 0.0
        if part is not None and now >= deadline:
            about: int | None = data.estimated_rows() if hasattr(data, "estimated_rows") else None
            if about is not None:
                return max(about, encoder.rows)
            more = (fraction_read(data) or 0.0) - part
            return round((encoder.rows - rows) / more) if more > 0 else None
    return encoder.rows


def _take_chunk(chunk: Chunk, sample: Sample) -> None:
    """Add the commands of a chunk to the sample until the sample is large enough."""
    for index, row in enumerate(chunk.rows):
        if row >= SAMPLE_ROWS or sample.size >= SAMPLE_BYTES:
            sample.whole, sample.rows = False, row
            return
        command = chunk.command(index, index)
        sample.size += len(command)
        sample.commands.append(arguments(command))
        sample.row_of.append(row)
        if len(sample.shown) < COMMANDS_SHOWN:
            sample.shown.append(shown_command(command[:HEAD_BYTES]))


def _rejected(
    template: Template | None,
    server: ServerLike,
    timeout: float | None,
    mode: Merge | Serialize | Replicate | None,
) -> str:
    """Return why the server would reject the template's commands; empty if it accepts them."""
    needs = Requirements.of(template, nodes=True)
    if isinstance(mode, Serialize):
        needs = replace(needs, commands=(*needs.commands, RESTORE))
    replaces = isinstance(mode, Merge) and mode.exists == "replace"
    if replaces:
        needs = replace(needs, optional_commands=commands_that_replace, himport=True)
    try:
        if isinstance(mode, Replicate):
            check_target(server, timeout)
        elif needs.commands:
            answers = Server(server, needs).ask(timeout)
            if isinstance(mode, Serialize):
                serializer(mode, 1, answers)
            if replaces:
                replacer([], answers)
    except (CommandError, TransportError) as error:
        message: str = error.args[0]
        return message
    return ""


def _problems(
    sample: Sample,
    inquiry: Inquiry,
    estimate: Estimate,
    nodes: list[Node],
    parts: SlotShares | None,
) -> list[str]:
    """Return the problems found, each described in one sentence."""
    problems = [sample.fault] if sample.fault else []
    if parts is not None and parts.refused_rows:
        problems.append(
            f"{counted(parts.refused_rows, 'row')} of the sample can't be sent to a cluster, the "
            f"first: {'; '.join(parts.refusals)}"
        )
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
        problems.append(busy_keys(inquiry.existing))
    problems += inquiry.refused[:KEYS_SHOWN]
    if inquiry.rejected and not (inquiry.unknown or inquiry.wrong_arity or inquiry.refused):
        problems.append(inquiry.rejected)
    too_large = full("the data", "the server", inquiry, estimate.memory)
    if nodes:
        each = (full(f"the part for {n.server}", "it", n.inquiry, n.memory) for n in nodes)
        too_large = [words for found in each for words in found]
    problems += too_large[:PROBLEMS_SHOWN]
    if len(too_large) > PROBLEMS_SHOWN:
        problems.append(
            f"{len(too_large) - PROBLEMS_SHOWN:,} more nodes have too little memory free"
        )
    return problems


def busy_keys(existing: list[str], *, grouped: bool = True) -> Message:
    """Return a message about existing keys; ``grouped`` is as for Hint."""
    return Message(
        f"BUSYKEY for {counted(len(existing), 'key')} of the sample: "
        f"{', '.join(existing[:KEYS_SHOWN])}; delete what exists, or use ",
        Hint("exists", "replace", grouped=grouped),
        " or ",
        Hint("exists", "skip", grouped=grouped),
    )


def full(data: str, server: str, inquiry: Inquiry, memory: int) -> list[str]:
    """Return a list with a message if a server lacks free memory for the load; otherwise []."""
    if not inquiry.maxmemory or inquiry.used_memory is None:
        return []
    free = inquiry.maxmemory - inquiry.used_memory
    if memory <= free or (inquiry.policy or "").startswith("allkeys"):
        return []
    return [
        f"{data} needs about {size_text(memory)}, and {server} has {size_text(max(free, 0))} free "
        f"(maxmemory, policy {inquiry.policy}); raise its maxmemory"
    ]
