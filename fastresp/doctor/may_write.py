"""Whether the doctor may write on a server, from what is known of it."""

from __future__ import annotations

from .facts import Facts

__all__ = ["SMALL_BYTES", "WRITES", "WRITING_S", "is_full", "no_writing"]

# All changes that the doctor makes, its DEL among them, and for how long it may make them.
WRITES = 8_500
WRITING_S = 30.0
# In a server that holds more nothing is written, and in one that holds less a save is soon done.
LARGE_BYTES = 4 << 30
SMALL_BYTES = 256 << 20
# With less than this below maxmemory nothing is written: it could push out data, or be refused.
ROOM_BYTES = 8 << 20
ROOM_SHARE = 0.1


def no_writing(facts: Facts) -> str:
    """Why nothing should be written, from what is known before; empty where nothing speaks."""
    if facts.replica:
        return "it is a replica"
    if is_full(facts):
        return "its memory is nearly full"
    if facts.number("rdb_bgsave_in_progress") or facts.number("aof_rewrite_in_progress"):
        return "it is writing its data to disk just now"
    if (facts.number("used_memory") or 0) > LARGE_BYTES:
        # To save it takes a fork, and up to twice the memory.
        return f"it holds more than {LARGE_BYTES >> 30} GiB: the writes could make it save all"
    return _saving(facts)


def _saving(facts: Facts) -> str:
    """The save point that the doctor's writes would reach; empty for none, or if it is not told.

    To save little is no harm: a server does it by default 5 minutes after a hundred changes. One
    that the server's own changes have reached comes without the doctor. Source: redis.conf, and
    serverCron() of Redis.
    """
    changes, last = facts.number("rdb_changes_since_last_save"), facts.number("rdb_last_save_time")
    if changes is None or last is None or (facts.number("used_memory") or 0) <= SMALL_BYTES:
        return ""
    age = facts.now - last
    for seconds, most in facts.save_points:
        if changes < most <= changes + WRITES and age + WRITING_S > seconds:
            return (
                f"the writes would make it save all its data (save {seconds} {most}; it saved "
                f"{max(0.0, age):,.0f} s ago); after a BGSAVE they would not"
            )
    return ""


def is_full(facts: Facts) -> bool:
    """Whether a write could be refused or push out data, as buffers of a connection can, too."""
    left, most = facts.memory_left, facts.number("maxmemory")
    return left is not None and most is not None and left < max(ROOM_BYTES, most * ROOM_SHARE)
