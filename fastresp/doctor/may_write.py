"""Decide from a server's state whether the doctor may write to the server."""

from __future__ import annotations

from .facts import Facts

__all__ = ["SMALL_BYTES", "WRITES", "WRITING_S", "is_full", "no_writing"]

# Maximum number of changes that the doctor makes, including DEL, and their maximum time.
WRITES = 8_500
WRITING_S = 30.0
# Write nothing to a server with more than LARGE_BYTES of data. With less than SMALL_BYTES, a save
# is fast and harmless.
LARGE_BYTES = 4 << 30
SMALL_BYTES = 256 << 20
# Write nothing if less memory than this is left below maxmemory: a write could evict keys, or be
# refused.
ROOM_BYTES = 8 << 20
ROOM_SHARE = 0.1


def no_writing(facts: Facts) -> str:
    """Return why the doctor must not try to write; empty if it may."""
    if facts.replica:
        return "the server is a replica"
    if is_full(facts):
        return "the server's memory is nearly full"
    if facts.number("rdb_bgsave_in_progress") or facts.number("aof_rewrite_in_progress"):
        return "the server is saving its data to disk"
    if (facts.number("used_memory") or 0) > LARGE_BYTES:
        # A save needs a fork, and up to twice the memory.
        return (
            f"the server has more than {LARGE_BYTES >> 30} GiB of data: writes could trigger a save"
        )
    return _saving(facts)


def _saving(facts: Facts) -> str:
    """Return why the doctor's writes would trigger a save of much data; empty if they would not.

    A save of little data is harmless: by default, a server saves 5 minutes after 100 changes. If
    other changes have already reached a save point, the server saves even without the doctor.
    Source: redis.conf, and serverCron() of Redis.
    """
    changes, last = facts.number("rdb_changes_since_last_save"), facts.number("rdb_last_save_time")
    if changes is None or last is None or (facts.number("used_memory") or 0) <= SMALL_BYTES:
        return ""
    age = facts.now - last
    for seconds, most in facts.save_points:
        if changes < most <= changes + WRITES and age + WRITING_S > seconds:
            return (
                f"writes would trigger a save of all data (save {seconds} {most}; last save "
                f"{max(0.0, age):,.0f} s ago); run BGSAVE first to measure writes"
            )
    return ""


def is_full(facts: Facts) -> bool:
    """Return whether so little memory is left that a write could evict keys, or be refused.

    Even the buffers of a connection could evict keys.
    """
    left, most = facts.memory_left, facts.number("maxmemory")
    return left is not None and most is not None and left < max(ROOM_BYTES, most * ROOM_SHARE)
