"""The figures in the guide to large loads, ``docs/guides/scale.md``, from the results of scale.py.

Three parts of the page are written anew: what is between the two comments, the numbers in the
Python block, and the block of text after it, which is what the Python block prints.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from statistics import median

from results import Result

from .data import Results
from .text import machine_facts

__all__ = ["updated"]

BEGIN, END = "<!-- figures: python bench/report.py -->\n", "<!-- end of figures -->\n"
BLOCKS = re.compile(r"(```python\n)(.*?)(```\n\n```text\n)(.*?)(```\n)", re.DOTALL)
KINDS = tuple(f"{source}, {size} bytes" for source in ("rows", "columns") for size in (8, 129))
PRIMARIES = 3


def updated(page: str, results: Results) -> str:
    """Return the page with the figures of these results.

    Raises:
        NotMeasured: a row that it needs is missing.
        ValueError: the page lacks one of the parts.
    """
    before, found, rest = page.partition(BEGIN)
    _, ended, rest = rest.partition(END)
    if not (found and ended):
        raise ValueError(f"the page lacks {BEGIN.strip()} or {END.strip()}")
    for name, number in _numbers(results).items():
        rest, count = re.subn(rf"^{name} = [\d_]+", f"{name} = {number:_}", rest, flags=re.M)
        if count != 1:
            raise ValueError(f"the page has {count} lines for {name}")
    rest, count = BLOCKS.subn(_printed, rest)
    if count != 1:
        raise ValueError(f"the page has {count} blocks of Python with what they print")
    return before + BEGIN + "\n".join([*_figures(results), ""]) + END + rest


def _printed(blocks: re.Match[str]) -> str:
    """Return a block of Python and one of text, with what the first prints."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(blocks[2], {})
    return f"{blocks[1]}{blocks[2]}{blocks[3]}{printed.getvalue()}{blocks[5]}"


def _numbers(results: Results) -> dict[str, int]:
    """Return the numbers of the Python block, with three significant digits."""
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
    return {name: int(float(f"{number:.3g}")) for name, number in found.items()}


def _by_node(row: Result) -> float:
    """Return the commands of a node / the CPU time of the slowest."""
    return row.operations / PRIMARIES / median(row.of("node_cpu"))


def _by_loader(row: Result) -> float:
    """Return the commands / the CPU time of the loader: its rate if it has a core of its own."""
    return row.operations / median(row.of("client_cpu"))


def _figures(results: Results) -> Iterator[str]:
    """Yield the lines between the comments."""
    if run := results.machine.get("runs", {}).get("scale"):
        known = dict(machine_facts(results))
        facts = [known[name] for name in ("Processor", "Memory", "System") if name in known]
        quick = ", a quick run" if "Run" in known else ""
        yield f"*Measured {run['started'][:10]}, {', '.join(facts)}{quick}.*"
        yield ""
    yield f"| Nodes | {' | '.join(KINDS)} |"
    yield "|---|" + "---:|" * len(KINDS)
    first = f"{KINDS[0]}, "
    for row in results.rows("scale lanes", "scale"):
        if row.row.startswith(first):
            nodes = row.row.removeprefix(first)
            cells = [_cell(results, f"{kind}, {nodes}") for kind in KINDS]
            yield f"| {nodes} | {' | '.join(cells)} |"
    most = max(results.rows("scale commands", "scale"), key=lambda row: row.operations)
    peak = max(most.by_round("peak").values()) / 2**20
    yield ""
    count = f"{most.operations:,}"
    yield f"A process that loads {count} commands needs {peak:,.0f} MiB, Python included."


def _cell(results: Results, name: str) -> str:
    row = results.find("scale", name, table="scale lanes")
    rate = _by_loader(row)
    return f"{rate / 1e6:.3g} M/s, {rate * median(row.of('command_bytes')) / 1e6:,.0f} MB/s"
