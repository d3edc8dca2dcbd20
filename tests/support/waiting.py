"""Waits for a condition, which fail if it does not become true in time."""

from __future__ import annotations

import time
from collections.abc import Callable

import redis

__all__ = ["only_we_are_connected", "until", "until_loaded"]


def until(
    reached: Callable[[], object], seconds: float = 60, reason: str = "the wait has not ended"
) -> None:
    """Wait until a condition is true.

    Raises:
        AssertionError: with the reason, after this number of seconds.
    """
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, reason
        time.sleep(0.01)


def only_we_are_connected(client: redis.Redis) -> None:
    """Wait until no other client is connected."""
    until(lambda: len(client.client_list()) == 1)


def until_loaded(client: redis.Redis) -> None:
    """Wait until a server has read its data from disk."""
    until(lambda: not client.info("persistence")["loading"])
