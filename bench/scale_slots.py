"""Cost of key slots for an encoder, for ``scale.py``.

SETs are encoded and not sent. Without slots, the encoder's chunks are used. With slots, each
command is copied into the chunk of its node in a cluster of 1 or 3. A value is the CPU time of this
process.
"""

from __future__ import annotations

from functools import partial
from time import process_time

from loader import SOURCES, source
from results import Result
from turns import Timed, entries, measure

from fastresp.encode.writer import CHUNK_BYTES
from fastresp.resp.route import Router
from fastresp.resp.slots import SLOTS
from fastresp.server.options import Options
from fastresp.sources.chunks import ROUTED_BYTES
from fastresp.sources.source import encoding

COMMANDS = 1_000_000
BLOCK = 100_000
SIZES = (8, 129)
# Nodes of the cluster, 0 for no slots, and their names in the rows.
NODES = {0: "without slots", 1: "1 node", 3: "3 nodes"}


def encode(kind: str, size: int, nodes: int) -> Timed:
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
    return Timed(used, {"client_cpu": used})


def measure_slots(rounds: int) -> list[Result]:
    runs = {
        f"{kind}, {size} bytes, {name}": partial(encode, kind, size, nodes)
        for kind in SOURCES
        for size in SIZES
        for nodes, name in NODES.items()
    }
    return measure(entries("scale slots", runs, COMMANDS), rounds)
