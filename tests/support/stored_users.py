"""Hashes of users in a server, for tests that fetch them."""

from __future__ import annotations

from typing import Any

import fastresp
from fastresp.server.local_server import LocalServer

FIELDS = ["name", "city"]


def loaded(server: LocalServer, count: int = 10) -> list[dict[str, Any]]:
    """Store users, every third without a city; return them."""
    users = [
        {"id": str(i), "name": f"näme {i}", "city": None if i % 3 == 0 else "Ulm" * (i % 5)}
        for i in range(count)
    ]
    fastresp.mass_insert(users, "HSET user:{id} {**}", server=server.url, nulls="skip")
    return users


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: int(row["id"]))
