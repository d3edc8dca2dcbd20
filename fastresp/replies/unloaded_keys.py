"""Find the keys to unload, and their types."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from typing import Any, NamedTuple

from ..outcome.errors import CommandError, SourceError
from ..outcome.messages import Hint, Message
from ..server.settings import Server, ServerLike
from .iter_replies import iter_replies
from .key_pattern import Pattern, shown_key
from .scan import Scan

__all__ = [
    "FIRST_ENTRIES",
    "KINDS",
    "Kind",
    "LeftOut",
    "as_reading",
    "check_changed",
    "check_found",
    "hashes_of",
    "keys_of",
    "noted",
    "other_type",
    "type_of",
]

# The number of entries in the first request for a set, sorted set or list.
FIRST_ENTRIES = 256


class Kind(NamedTuple):
    """A type of keys.

    Attributes:
        type: the name of the type in replies to TYPE.
        names: the names of the columns after the key's column.
        first: the template of the command that reads a key's value or first entries.
        command: the command that reads further entries; None if a key has a single value.
    """

    type: str
    names: tuple[str, ...]
    first: str
    command: str | None


KINDS = {
    "string": Kind("string", ("value",), "GET {0}", None),
    "json": Kind("ReJSON-RL", ("value",), "JSON.GET {0}", None),
    "set": Kind("set", ("member",), f"SSCAN {{0}} 0 COUNT {FIRST_ENTRIES}", "SSCAN"),
    "zset": Kind("zset", ("member", "score"), f"ZSCAN {{0}} 0 COUNT {FIRST_ENTRIES}", "ZSCAN"),
    "list": Kind("list", ("item",), f"LRANGE {{0}} 0 {FIRST_ENTRIES - 1}", "LRANGE"),
}


def as_reading(server: ServerLike | Server) -> Server:
    """Return a Server to read from; in a cluster, it connects to all primaries."""
    return server if isinstance(server, Server) else Server(server, reading=True, nodes=True)


def type_of(key: str | bytes, server: Server, timeout: float | None) -> str | None:
    """Return the type of a key, with its name from KINDS if possible; None for a missing key."""
    [reply] = iter_replies([("TYPE", key)], server=server.any_node(), timeout=timeout, decode=True)
    return None if reply == "none" else kind_of(reply)


def kind_of(reply: str) -> str:
    """Return the name from KINDS for a reply to TYPE; for an unknown type, the reply."""
    return next((name for name, kind in KINDS.items() if kind.type == reply), reply)


def other_type(key: str, kind: str) -> SourceError:
    return SourceError(Message(f"{key} is a {kind}; use ", Hint("type", kind)))


def check_found(
    target: Pattern, kind: str | None, server: ServerLike | Server, timeout: float | None
) -> bool:
    """Check the type of the first existing key that SCAN finds for a pattern.

    Returns:
        True if the key has the wanted type, by default ``"hash"``; False if no key matches.

    Raises:
        SourceError: the key has a different type; the message names the key and its type.
    """
    kind = kind or "hash"
    where = as_reading(server)
    with closing(Scan(where, timeout).pages(target.glob, None)) as pages:
        for page in pages:
            for key in page:
                found = type_of(key, where, timeout)
                if found == kind:
                    return True
                if found is not None:
                    raise SourceError(
                        Message(
                            f"no {kind} matches, but {shown_key(key)} does, which is a {found}; "
                            "use ",
                            Hint("type", found),
                        )
                    )
    return False


def keys_of(
    target: Pattern, type_: str | None, server: Server, timeout: float | None
) -> Generator[bytes, None, None]:
    """Yield the keys of a type that match a pattern; for a single key, yield the key.

    SCAN may return a key twice, especially if a cluster node is lost. Loading a list twice would
    duplicate its items, so each key of a list is yielded only once.
    """
    if target.single:
        yield target.glob.encode()
        return
    with closing(Scan(server, timeout).pages(target.glob, type_)) as pages:
        seen: set[bytes] = set()
        for page in pages:
            if type_ == "list":
                page = [key for key in dict.fromkeys(page) if key not in seen]
                seen.update(page)
            yield from page


def noted(keys: Iterable[bytes], kept: deque[bytes]) -> Iterator[bytes]:
    """Yield keys, and append each key to ``kept``, so that the caller can match replies to keys."""
    for key in keys:
        kept.append(key)
        yield key


def check_changed(error: CommandError) -> None:
    """Ignore WRONGTYPE: the key changed its type after SCAN found it.

    Raises:
        CommandError: the error is not WRONGTYPE.
    """
    if not error.text.startswith("WRONGTYPE "):
        raise error


class LeftOut:
    """The keys of a pattern that are not hashes.

    Attributes:
        count: the number of keys that are not hashes.
        first: the first key that is not a hash; None if there is no such key.
        type: the type of the first key.
        deleted: the number of keys that were deleted after SCAN found them.
    """

    def __init__(self) -> None:
        self.count = 0
        self.first: bytes | None = None
        self.type = ""
        self.deleted = 0

    def add(self, key: bytes, type_: str) -> None:
        """Count a key that is not a hash; the type of a deleted key is ``"none"``."""
        if type_ == "none":
            self.deleted += 1
            return
        self.count += 1
        if self.first is None:
            self.first, self.type = key, type_


def hashes_of(
    keys: Iterable[bytes], left_out: LeftOut, server: Server, timeout: float | None
) -> Generator[bytes, None, None]:
    """Yield the keys that are hashes; count the other keys in ``left_out``."""
    kept: deque[bytes] = deque()
    types: Any = iter_replies(
        noted(keys, kept), "TYPE {0}", server=server, timeout=timeout, decode=True
    )
    with closing(types):
        for found in types:
            key = kept.popleft()
            if found == "hash":
                yield key
            else:
                left_out.add(key, kind_of(found))
