"""The figures of the guide to large loads, from the results of scale.py."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from statistics import median

from results import Result

from .data import NotMeasured, NotRun, Results
from .figures import table

KINDS = [f"{source}, {size} bytes" for source in ("rows", "columns") for size in (8, 129)]
PRIMARIES = 3
PLAN = """\
from math import ceil

# Measured by bench/scale.py.
node = {node:_}  # commands per second of a node, on its core
replicated = {replicated:_}  # the same, of a node with a replica
process = {process:_}  # commands per second of a process, into 100 nodes
command = {command:_}  # bytes of a command
key = {key:_}  # bytes of memory of a key

keys, nodes = 10**10, 100
rate = nodes * node
print(f"The nodes take {{keys / rate:,.0f}} s,")
print(f"with a replica each {{keys / nodes / replicated:,.0f}} s.")
print(f"{{ceil(rate / process)}} processes feed them.")
print(f"One process takes {{keys / process / 3600:,.1f}} hours.")
print(f"The network carries {{keys * command / 1e12:,.2f}} TB,")
print(f"{{rate * command * 8 / 1e9:,.0f}} Gbit/s in all,")
print(f"{{node * command * 8 / 1e9:,.2f}} Gbit/s to each node.")
print(f"Each node needs {{keys * key / nodes / 1e9:,.1f}} GB of memory.")
"""


def lanes(results: Results) -> str:
    """Return the table of what one process feeds."""
    first = f"{KINDS[0]}, "
    rows = []
    results.find("scale", f"{first}100 nodes", table="scale lanes")
    for row in results.rows("scale lanes", "scale"):
        if row.row.startswith(first):
            nodes = row.row.removeprefix(first)
            rows.append([nodes, *(_lane(results, f"{kind}, {nodes}") for kind in KINDS)])
    return table(("Nodes", *KINDS), rows)


def _lane(results: Results, name: str) -> str:
    row = results.find("scale", name, table="scale lanes")
    rate = _by_loader(row)
    return f"{rate / 1e6:.3g} M/s, {rate * median(row.of('command_bytes')) / 1e6:,.0f} MB/s"


def _by_loader(row: Result) -> float:
    """Return the commands / the CPU time of the loader: its rate if it has a core of its own."""
    return row.operations / median(row.of("client_cpu"))


def largest(results: Results) -> str:
    if "scale" not in results:
        raise NotRun("scale.py was not run")
    most = max(results.rows("scale commands", "scale"), key=lambda row: row.operations)
    if not most.values:
        raise NotMeasured(most.reason)
    peaks = most.by_round("peak").values()
    return f"{most.operations:,} commands needs {max(peaks) / 2**20:,.0f} MiB"


def plan(results: Results) -> str:
    """Return a program that computes what 10^10 keys take, and what it prints."""
    lane = results.find("scale", "columns, 129 bytes, 100 nodes", table="scale lanes")
    alone, replicated = (
        results.find("scale", f"{setup} fastresp columns", table="scale cluster")
        for setup in ("3+0", "3+3")
    )
    found = {
        "node": _by_node(alone),
        "replicated": _by_node(replicated),
        "process": _by_loader(lane),
        "command": median(lane.of("command_bytes")),
        "key": median(alone.of("key_bytes")),
    }
    code = PLAN.format(**{name: int(float(f"{number:.3g}")) for name, number in found.items()})
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(code, {})
    return f"```python\n{code}```\n\n```text\n{printed.getvalue()}```"


def _by_node(row: Result) -> float:
    """Return the commands of a node / the CPU time of the slowest."""
    return row.operations / PRIMARIES / median(row.of("node_cpu"))
