"""Ready commands with values of 129 bytes."""

from __future__ import annotations

from fastresp.cli.demo.methods import PAYLOAD

KINDS = ("SET", "LPUSH")


def commands(kind: str, count: int) -> list[tuple[str, str, str]]:
    """Return SETs with distinct keys, or LPUSHes with one key."""
    if kind == "SET":
        return [("SET", f"key:{index:08}", PAYLOAD) for index in range(count)]
    return [("LPUSH", "key", PAYLOAD)] * count
