"""Cost of key slots for an encoder, for ``scale.py``.

1,000,000 SETs with values of 8 and of 129 bytes are encoded from rows and from Arrow columns, and
not sent. Without slots, the encoder's chunks are used. With slots, each command is
copied into the chunk of its node in a cluster of 1 or 3. A value is the CPU time of this process.
"""

from __future__ import annotations

from time import process_time

from loader import SOURCES, source
from results import Result
from turns import show

from fastresp.encode.writer import CHUNK_BYTES
from fastresp.resp.route import Router
from fastresp.resp.slots import SLOTS
from fastresp.server.options import Options
from fastresp.sources.chunks import ROUTED_BYTES
from fastresp.sources.source import encoding

__all__ = ["measure_slots"]

COMMANDS = 1_000_000
BLOCK = 100_000
SIZES = (8, 129)
# Nodes of the cluster; 0 for no slots.
NODES = (0, 1, 3)


def encode(kind: str, size: int, nodes: int) -> float:
    """Encode a source of SETs; return the CPU time in seconds."""
    template, make = source(kind, BLOCK, size)
    writer, data = encoding(make(COMMANDS), template, Options())
    router = None
    if nodes:
        of_slots = [slot * nodes // SLOTS for slot in range(SLOTS)]
        router = Router(nodes, ROUTED_BYTES // nodes, CHUNK_BYTES // 2, of_slots=of_slots)
    count, begun = 0, process_time()
    for chunk in writer.chunks(data):
        made = [chunk] if router is None else router.route(chunk)
        count += sum(each.commands for each in made)
    if router is not None:
        count += sum(each.commands for each in router.flush())
    used = process_time() - begun
    if count != COMMANDS:
        raise SystemExit(f"{kind}: {count:,} commands were made instead of {COMMANDS:,}")
    return used


def measure_slots(rounds: int) -> list[Result]:
    """Encode each source without slots and with them, in rounds."""
    words = {0: "without slots", 1: "1 node", 3: "3 nodes"}
    made = {
        (kind, size, nodes): Result(
            "scale slots", f"{kind}, {size} bytes, {words[nodes]}", "", COMMANDS
        )
        for kind in SOURCES
        for size in SIZES
        for nodes in NODES
    }
    for number in range(rounds + 1):
        for (kind, size, nodes), result in made.items():
            show(f"round {number} of {rounds}: {result.row}")
            used = encode(kind, size, nodes)
            if number:  # the first imports, and touches memory for the first time
                result.add(used, round=number, client_cpu=used)
    return [*made.values()]
