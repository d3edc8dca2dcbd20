"""Ask a server, or the nodes of a cluster, about commands, without changing anything on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import Any, TypeAlias

from ..encode.row_key import RowKeys
from ..outcome.errors import CommandError, EncodeError, TransportError
from ..outcome.messages import shown_argument, shown_reply
from ..outcome.passwords import redacted
from ..replies.iter_replies import iter_replies
from ..resp.commands import FOR_ALL, commands_with, properties_of
from ..resp.shown import HEAD_BYTES, refusal, shown_command
from ..resp.slots import NO_KEY, OPEN, SEVERAL, SLOTS, WATCHED, Rules
from ..resp.values import pack
from ..server.cluster import Topology
from ..server.known_faults import SETTINGS_OF_FAULTS
from ..server.reply_parser import parse_info
from ..server.settings import Server, ServerLike, one_server
from ..server.threads import in_parallel
from .memory_estimate import LIMITS, growth
from .server_warnings import SETTINGS

__all__ = [
    "Command", "Inquiry", "SlotShares", "command_info", "deleting", "inquire", "inquire_each",
    "merged", "slot_shares",
]  # fmt: skip

# Larger commands are not checked with ACL DRYRUN: the reply is not worth the traffic.
DRYRUN_BYTES = 1 << 16
# The key type that the commands of an ACL category need. Source: server.c of Redis 7.0.
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
# Commands that overwrite a key of any type, or keep an existing key.
ANY_TYPE = frozenset(("SET", "SETEX", "PSETEX", "SETNX", "MSET", "MSETNX", "MGET", "BITOP"))
DELETING = commands_with("deletes")
Command: TypeAlias = tuple[bytes, ...]

# The slot number of a command that is sent to all nodes.
EVERY = SLOTS
# Maximum bytes of a command's name in a message.
NAME_SHOWN = 40


@dataclass(frozen=True)
class CommandInfo:
    """COMMAND INFO's reply about one command.

    Attributes:
        arity: number of arguments, including the name; -N means at least N.
        flags: flags such as ``"write"``.
        first_key: index of the argument that is the first key; 0 if there is no key.
        last_key: index of the argument that is the last key, counted from the end if negative.
        key_step: number of arguments from one key to the next.
        categories: ACL categories such as ``"@string"``; empty before Redis 6.0.
    """

    name: str
    arity: int
    flags: frozenset[str]
    first_key: int
    last_key: int
    key_step: int
    categories: frozenset[str]

    @classmethod
    def of(cls, reply: Any) -> CommandInfo | None:
        """Parse the reply about one command; return None for an unknown command.

        Raises:
            ValueError: ``reply`` is not a reply to COMMAND INFO.
        """
        match reply:
            case None:
                return None
            case [str(name), int(arity), [*flags], int(first), int(last), int(step), *more] if (
                _are_words(flags) and (step > 0 or not first)
            ):
                categories = frozenset(more[0] if more and _are_words(more[0]) else ())
                return cls(name.upper(), arity, frozenset(flags), first, last, step, categories)
        raise ValueError(f"not an answer to COMMAND INFO: {shown_reply(reply)}")

    def accepts(self, count: int) -> bool:
        """Return whether the command accepts this number of arguments, including its name."""
        return count == self.arity if self.arity >= 0 else count >= -self.arity

    def keys(self, arguments: Collection[bytes]) -> list[bytes]:
        """Return the keys among the arguments of a command."""
        if not self.first_key:
            return []
        last = self.last_key if self.last_key >= 0 else len(arguments) + self.last_key
        return list(arguments)[self.first_key : last + 1 : self.key_step]


def command_info(
    names: Iterable[str], server: ServerLike | Server, *, timeout: float | None
) -> dict[str, CommandInfo | None] | None:
    """Ask a server about commands with COMMAND INFO.

    Returns:
        A dict from name to CommandInfo, with None for each command that the server does not
        know; or None instead of the dict if COMMAND INFO fails.

    Raises:
        TransportError: the server can't be used.
    """
    names = list(names)
    if not names:
        return {}
    question = [("COMMAND", "INFO", *names)]
    where = one_server(server)  # the command has no key, so in a cluster any node will do
    [reply] = iter_replies(question, server=where, on_error="collect", decode=True, timeout=timeout)
    if not isinstance(reply, list) or len(reply) != len(names):
        return None
    try:
        return {name: CommandInfo.of(each) for name, each in zip(names, reply, strict=True)}
    except ValueError:
        return None


def _are_words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def deleting(names: Iterable[str], server: ServerLike, *, timeout: float | None) -> list[str]:
    """Return the names of the commands that delete data, or that change the server itself.

    Commands in the server's ACL category @dangerous are included.

    Raises:
        TransportError: the server can't be used.
    """
    names = list(names)
    known = command_info(names, server, timeout=timeout) or {}
    return [
        name
        for name in names
        if name in DELETING or ((info := known.get(name)) and "@dangerous" in info.categories)
    ]


@dataclass
class Inquiry:
    """A server's answers about the commands of a sample.

    Attributes:
        unreachable: why the server could not be asked; empty if it answered.
        used_memory: the memory that the server uses, in bytes; None if unknown.
        maxmemory: the server's memory limit, in bytes; 0 means no limit, None means unknown.
        policy: the server's maxmemory-policy; None if unknown.
        limits: limits of the compact encodings; see memory_estimate.LIMITS.
        user: the ACL user of the load; None if unknown.
        allowed: whether the ACL allows that user to run the commands; None if unknown.
        refused: the ACL's error messages for the commands that it does not allow.
        unknown: names of commands that the server does not know.
        wrong_arity: commands with too many or too few arguments, formatted for display.
        wrong_types: a message for each existing key that has the wrong type for its command.
        existing: the keys that exist, in quotes.
        checked_keys: number of keys whose type was checked.
        info: the fields of INFO; empty if refused.
        config: the settings in SETTINGS and of known faults, as far as the server returns them.
        rejected: why the server would reject a command of the template in every row; empty if it
            accepts all commands.
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
    info: dict[str, str] = field(default_factory=dict)
    config: dict[str, str] = field(default_factory=dict)
    rejected: str = ""


def inquire(commands: Sequence[Command], server: Server, *, timeout: float | None) -> Inquiry:
    """Ask a server about commands, without changing anything on it.

    Raises:
        TransportError: the server can't be used.
    """
    inquiry = Inquiry()
    names = list(dict.fromkeys(_name(command) for command in commands))
    questions: list[Sequence[bytes | str]] = [("INFO",), ("ACL", "WHOAMI")]
    settings = dict.fromkeys((*LIMITS, *SETTINGS, *SETTINGS_OF_FAULTS))
    questions += [("CONFIG", "GET", name) for name in settings]
    info, user, *replies = _ask(questions, server, timeout)
    fields = inquiry.info = parse_info(info)
    inquiry.used_memory = _number(fields.get("used_memory"))
    inquiry.maxmemory = _number(fields.get("maxmemory"))
    inquiry.policy = fields.get("maxmemory_policy")
    inquiry.user = user if isinstance(user, str) else None
    for reply in replies:
        match reply:
            case [str(name), str(value)]:
                inquiry.config[name] = value
    for limit in LIMITS:
        most = _number(inquiry.config.get(limit))
        if most is not None:
            inquiry.limits[limit] = most
    known = command_info(names, server, timeout=timeout)
    if known is not None:
        inquiry.unknown = [name for name in names if known[name] is None]
        _check_arity(commands, known, inquiry)
        _check_types(commands, known, inquiry, server, timeout)
    if inquiry.user is not None:
        _check_permissions(commands, inquiry, server, timeout)
    return inquiry


def inquire_each(
    commands: Sequence[Sequence[Command]], servers: Sequence[Server], *, timeout: float | None
) -> list[Inquiry]:
    """Ask several servers in parallel, each about its commands."""
    results = in_parallel(
        range(len(servers)), lambda at: inquire(commands[at], servers[at], timeout=timeout)
    )
    return [
        Inquiry(unreachable=each.args[0]) if isinstance(each, TransportError) else each
        for each in results
    ]


def merged(inquiries: Sequence[Inquiry]) -> Inquiry:
    """Combine the answers of all nodes of a cluster; memory sizes are summed."""
    first = inquiries[0]
    used = [each.used_memory for each in inquiries if each.used_memory is not None]
    most = [each.maxmemory for each in inquiries if each.maxmemory]
    policies = dict.fromkeys(each.policy for each in inquiries if each.policy)
    answers = {each.allowed for each in inquiries if each.allowed is not None}
    return Inquiry(
        unreachable=next((each.unreachable for each in inquiries if each.unreachable), ""),
        used_memory=sum(used) if len(used) == len(inquiries) else None,
        # If one node has no limit, the cluster has no limit.
        maxmemory=sum(most) if len(most) == len(inquiries) else 0 if used else None,
        policy=", ".join(policies) or None,
        limits=first.limits,
        user=next((each.user for each in inquiries if each.user), None),
        allowed=all(answers) if answers else None,
        refused=_once(each.refused for each in inquiries),
        unknown=_once(each.unknown for each in inquiries),
        wrong_arity=_once(each.wrong_arity for each in inquiries),
        wrong_types=_once(each.wrong_types for each in inquiries),
        existing=_once(each.existing for each in inquiries),
        checked_keys=sum(each.checked_keys for each in inquiries),
    )


def _once(lists: Iterable[list[str]]) -> list[str]:
    return list(dict.fromkeys(chain.from_iterable(lists)))


def _number(text: Any) -> int | None:
    """Parse a number from the server; return None for anything else."""
    try:
        return int(text)
    except (TypeError, ValueError):
        return None


def _check_arity(
    commands: Sequence[Command], known: dict[str, CommandInfo | None], inquiry: Inquiry
) -> None:
    for command in commands:
        info = known[_name(command)]
        if info is not None and not info.accepts(len(command)):
            inquiry.wrong_arity.append(shown_command(pack(*command)[:HEAD_BYTES]))


def _check_types(
    commands: Sequence[Command],
    known: dict[str, CommandInfo | None],
    inquiry: Inquiry,
    server: Server,
    timeout: float | None,
) -> None:
    expected: dict[bytes, tuple[set[str], str]] = {}
    for command in commands:
        info = known[_name(command)]
        if info is None or not (types := _types(info)):
            continue
        keys = info.keys(command)
        # The destination of a STORE command is overwritten, whatever its type.
        for key in keys[1:] if info.name.endswith("STORE") else keys:
            expected.setdefault(key, (types, info.name))
    replies = _ask([("TYPE", key) for key in expected], server, timeout)
    for (key, (types, name)), reply in zip(expected.items(), replies, strict=True):
        if not isinstance(reply, str):  # no permission, or a key of another node of a cluster
            continue
        inquiry.checked_keys += 1
        if reply != "none":
            inquiry.existing.append(shown_argument(key))
        if reply != "none" and reply not in types:
            inquiry.wrong_types.append(
                f"{shown_argument(key)} holds a {reply}, and {name} expects a {' or '.join(types)}"
            )


def _types(info: CommandInfo) -> set[str]:
    """Return the key types that a command works on; empty if the command accepts any type."""
    if info.name in ANY_TYPE:
        return set()
    return {TYPES[category] for category in info.categories if category in TYPES}


def _check_permissions(
    commands: Sequence[Command], inquiry: Inquiry, server: Server, timeout: float | None
) -> None:
    """Check permissions with ACL DRYRUN, which needs Redis 7.0 and permission to run it."""
    user = inquiry.user or ""
    asked = [c for c in commands if sum(map(len, c)) <= DRYRUN_BYTES]
    replies = _ask([("ACL", "DRYRUN", user, *redacted(c)) for c in asked], server, timeout)
    answers = [reply for reply in replies if isinstance(reply, str)]
    if answers:
        inquiry.refused = list(dict.fromkeys(reply for reply in answers if reply != "OK"))
        inquiry.allowed = not inquiry.refused


def _ask(
    questions: Sequence[Sequence[bytes | str]], server: Server, timeout: float | None
) -> list[Any]:
    """Send commands in one pipeline, and return the replies, with None for each error reply."""
    replies = iter_replies(
        questions, server=server, on_error="collect", decode=True, timeout=timeout
    )
    return [None if isinstance(reply, CommandError) else reply for reply in replies]


def _name(command: Sequence[bytes]) -> str:
    return command[0].decode(errors="backslashreplace").upper()


@dataclass
class SlotShares:
    """The commands of a sample, grouped by the cluster node that they are routed to.

    Attributes:
        commands: for each node, the commands that are routed to it.
        slots: the slots of the commands in source order; commands sent to all nodes have none.
        refused: the commands of rows that can't be sent.
        refused_rows: number of rows that can't be sent.
        refusals: the reasons for the first refused rows.
    """

    commands: list[list[Command]]
    slots: list[int] = field(default_factory=list)
    refused: list[Command] = field(default_factory=list)
    refused_rows: int = 0
    refusals: list[str] = field(default_factory=list)

    def shares(self, topology: Topology, sizes: Sequence[float], times: float) -> list[float]:
        """Estimate each node's share of the whole load.

        Commands for slots of the sample are distributed as in the sample; commands for new slots
        are distributed like the cluster's slots. The second half of the sample predicts the number
        of new slots, which is small if the keys have only a few hash tags.

        Args:
            topology: topology of the cluster.
            sizes: size of each node's part of the sample, in commands or bytes.
            times: rows of the source / rows of the sample.
        """
        middle = len(self.slots) // 2
        whole = len(set(self.slots))
        more = (times - 1) * len(self.slots) / max(len(self.slots) - middle, 1)
        times_slots = growth(len(set(self.slots[:middle])), whole, more)
        known = 1 / min(times_slots, SLOTS / max(whole, 1))
        served = Counter(topology.slots)
        total = sum(sizes) or 1.0
        all_slots = sum(served[node] for node in range(len(sizes))) or 1
        return [
            known * size / total + (1 - known) * served[node] / all_slots
            for node, size in enumerate(sizes)
        ]


def slot_shares(
    commands: Sequence[Command],
    rows: Sequence[int],
    topology: Topology,
    rules: Rules,
    kept: int,
    keys: RowKeys,
) -> SlotShares:
    """Route each command of a sample to a node, as a load would.

    Args:
        commands: the arguments of each command of the sample.
        rows: the source row of each command.
        topology: topology of the cluster.
        rules: the key positions of commands.
        kept: maximum number of reasons in ``refusals``.
        keys: finds the keys of rows, for the reasons.
    """
    found = SlotShares([[] for _ in topology.nodes])
    for row, group in groupby(range(len(commands)), key=rows.__getitem__):
        indexes = list(group)
        of_row = [commands[index] for index in indexes]
        try:
            slots = _slots_of_row(of_row, row, indexes[0], topology, rules)
        except EncodeError as error:
            found.refused += of_row
            found.refused_rows += 1
            if len(found.refusals) < kept:
                at, count = error.command or 0, len(commands)
                words = commands.__getitem__
                error.set_row_key(keys.of_row(at, count, rows.__getitem__, words))
                found.refusals.append(str(error))
            continue
        found.slots += [slot for slot in slots if slot != EVERY]
        for slot, command in zip(slots, of_row, strict=True):
            nodes = found.commands if slot == EVERY else [found.commands[topology.slots[slot]]]
            for node in nodes:
                node.append(command)
    return found


def _slots_of_row(
    commands: Sequence[Command], row: int, first: int, topology: Topology, rules: Rules
) -> list[int]:
    """Return the slot of each command of a row; EVERY if the command is sent to all nodes.

    Args:
        first: the index of the row's first command in the source.

    Raises:
        EncodeError: a command can't be sent.
    """
    slots: list[int] = []
    transaction = NO_KEY
    for at, command in enumerate(commands):
        name = command[0].upper()
        slot = rules.slot(pack(*command), every=True)
        if name == b"WATCH":
            slot = WATCHED
        elif transaction >= 0:
            if slot in (NO_KEY, transaction):
                slot = transaction
            elif slot >= 0:
                slot = SEVERAL
            if properties_of(name).effect == "end":
                transaction = NO_KEY
        elif name == b"MULTI":
            slot = transaction = _slot_of_transaction(commands[at + 1 :], rules)
        elif slot == NO_KEY and is_for_all(command):
            slots.append(EVERY)
            continue
        if slot < 0 or topology.slots[slot] < 0:
            raise refusal(row, first + at, command[0][:NAME_SHOWN], len(command[0]), slot)
        slots.append(slot)
    return slots


def is_for_all(command: Command) -> bool:
    """Return whether a command without a key is sent to all nodes."""
    return tuple(word.upper() for word in command[:2]) in FOR_ALL


def _slot_of_transaction(commands: Sequence[Command], rules: Rules) -> int:
    """Return the slot of a transaction's first key.

    Return OPEN if the transaction has no end; otherwise, NO_KEY if it has no key.
    """
    found = NO_KEY
    for command in commands:
        slot = rules.slot(pack(*command))
        if slot >= 0 and found < 0:
            found = slot
        if properties_of(command[0]).effect == "end":
            return found
    return OPEN
