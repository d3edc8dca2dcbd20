"""Route the commands of a sample to the nodes of a cluster; find commands that can't be sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeAlias

from ..encode.row_key import RowKeys
from ..outcome.errors import EncodeError
from ..resp.commands import FOR_ALL, properties_of
from ..resp.shown import refusal
from ..resp.slots import NO_KEY, OPEN, SEVERAL, SLOTS, WATCHED, Rules
from ..resp.values import pack
from ..server.cluster import Topology
from .memory_estimate import growth

__all__ = ["Command", "SlotShares", "slot_shares"]

Command: TypeAlias = tuple[bytes, ...]

# The slot number of a command that is sent to all nodes.
EVERY = SLOTS
# Maximum bytes of a command's name in a message.
NAME_SHOWN = 40


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

    OPEN if the transaction has no end, NO_KEY if it has no key.
    """
    found = NO_KEY
    for command in commands:
        slot = rules.slot(pack(*command))
        if slot >= 0 and found < 0:
            found = slot
        if properties_of(command[0]).effect == "end":
            return found
    return OPEN
