"""Print the result of ``--dry-run``, as lines or as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, NoReturn

from ..load.dry_run import DryRun, Inquiry, Node
from ..outcome.report import counted, size_text
from .ending import Ending, in_options
from .exit_codes import Exit, say

__all__ = ["show_dry_run"]

NODES_SHOWN = 20


def show_dry_run(found: DryRun, asked: str, end: Ending) -> NoReturn:
    """Print what a load would do; exit with ``ERRORS`` if there are problems, otherwise ``OK``.

    Args:
        asked: the commands that the user would have to confirm; empty if there are none.
    """
    if end.as_json:
        end.fields = _fields(found) | {"asked": asked or None}
    else:
        for line in _lines(found, asked):
            say(line)
    end.end(Exit.ERRORS if found.problems else Exit.OK)


def _lines(found: DryRun, asked: str) -> list[str]:
    sample, estimate = found.sample, found.estimate
    lines = [*sample.shown]
    if len(sample.commands) > len(sample.shown):
        lines.append("...")
    lines.append("")
    if found.commands is None or found.size is None:
        lines.append(
            f"First {counted(sample.rows, 'row')}: {counted(len(sample.commands), 'command')}, "
            f"{size_text(sample.size)}; the total is unknown"
        )
    else:
        about = "" if sample.whole else "about "
        lines.append(
            f"Rows: {about}{sample.total_rows:,}; commands: {about}{found.commands:,}; "
            f"bytes to send: {about}{size_text(found.size)}"
        )
    scope = " for these rows" if found.commands is None else ""
    memory = (
        f"Memory in the server{scope}: about {size_text(estimate.memory)} in "
        f"{counted(estimate.keys, 'key')}"
    )
    if estimate.unknown:
        memory += f", not counting {', '.join(estimate.unknown)} (no formula)"
    lines.append(memory)
    if not found.inquiry.unreachable:
        lines += _server_lines(found.inquiry)
    if found.nodes:
        lines += _node_lines(found)
    if found.stale is not None:
        lines.append(f"To delete after the load: {found.stale}")
    if asked:
        lines.append(f"fastresp will ask for confirmation, unless you add --yes: {asked}")
    if found.warnings:
        lines += ["", "Warnings:", *(f"- {in_options(each)}" for each in found.warnings)]
        lines += [] if found.problems else [""]
    if found.problems:
        lines += ["", "Problems found:", *(f"- {in_options(each)}" for each in found.problems)]
    else:
        part = "" if sample.whole else f" in the first {counted(sample.rows, 'row')}"
        but = "; permissions could not be checked" if found.rights_unknown else ""
        lines.append(f"No problems found{part}{but}.")
    return [*lines, "This was a dry run: nothing was sent."]


def _memory_in_use(inquiry: Inquiry) -> str:
    if inquiry.used_memory is None:
        return "unknown"
    most = f"of {size_text(inquiry.maxmemory)}" if inquiry.maxmemory else "with no maxmemory"
    return f"{size_text(inquiry.used_memory)} {most} ({inquiry.policy})"


def _node_lines(found: DryRun) -> list[str]:
    lines = ["Share of each primary of the cluster:"]
    for node in found.nodes[:NODES_SHOWN]:
        commands = f"{node.share:.0%} of the commands"
        if found.commands is not None:
            commands += f" (about {round(found.commands * node.share):,})"
        lines.append(
            f"  {node.server}: {commands}, about {size_text(node.memory)} of memory; "
            f"in use: {_memory_in_use(node.inquiry)}"
        )
    if len(found.nodes) > NODES_SHOWN:
        lines.append(f"  and {len(found.nodes) - NODES_SHOWN:,} more; --json lists all")
    return lines


def _server_lines(inquiry: Inquiry) -> list[str]:
    allowed = {True: "yes", False: "no", None: "could not be checked"}
    user = f" as user {inquiry.user}" if inquiry.user else ""
    return [
        f"Memory in use: {_memory_in_use(inquiry)}",
        f"Allowed by the ACL{user}: {allowed[inquiry.allowed]}",
        f"Keys of another type: {len(inquiry.wrong_types):,} of {inquiry.checked_keys:,} checked",
    ]


def _fields(found: DryRun) -> dict[str, Any]:
    sample, inquiry, estimate = found.sample, found.inquiry, found.estimate
    return {
        "dry_run": True,
        "sample_rows": sample.rows,
        "rows": sample.total_rows,
        "exact": sample.whole,
        "commands": found.commands,
        "bytes": found.size,
        "shown": sample.shown,
        "keys": estimate.keys,
        "memory": estimate.memory,
        "memory_without": list(estimate.unknown),
        "used_memory": inquiry.used_memory,
        "maxmemory": inquiry.maxmemory,
        "maxmemory_policy": inquiry.policy,
        "user": inquiry.user,
        "allowed": inquiry.allowed,
        "rights_unknown": found.rights_unknown,
        "refused": inquiry.refused,
        "unknown_commands": inquiry.unknown,
        "wrong_arity": inquiry.wrong_arity,
        "wrong_types": inquiry.wrong_types,
        "existing": inquiry.existing,
        "checked_keys": inquiry.checked_keys,
        "refused_rows": found.refused_rows,
        "stale": None if found.stale is None else asdict(found.stale),
        "nodes": [_node_fields(found, node) for node in found.nodes],
        "warnings": [in_options(each) for each in found.warnings],
        "problems": [in_options(each) for each in found.problems],
    }


def _node_fields(found: DryRun, node: Node) -> dict[str, Any]:
    return {
        "server": node.server,
        "commands": None if found.commands is None else round(found.commands * node.share),
        "memory": node.memory,
        "used_memory": node.inquiry.used_memory,
        "maxmemory": node.inquiry.maxmemory,
        "maxmemory_policy": node.inquiry.policy,
    }
