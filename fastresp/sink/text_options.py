"""Options that an engine passes on as text, under names in any case."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

from ..server.settings import Server
from .reading import Reading
from .sink import OPTIONS

__all__ = ["reading_options", "sink_options"]

# Those that stay text, whatever they look like.
TEXTS = frozenset(("server", "template", "pattern", "exactly_once", "split", "rejects"))
WORDS = {"true": True, "false": False, "none": None}
# Those that are for the engine itself, and what others call ours.
ENGINES_OWN = frozenset(("checkpointlocation",))
OTHER_NAMES = {"command": "template", "url": "server", "numpartitions": "partitions"}
# How many read at the same time by default.
MOST_PARTITIONS = 4
ELSEWHERE = "set REDIS_URL where the tasks run, or spark.fastresp.password"


def sink_options(
    texts: Mapping[str, str], password: str | None = None, tasks: int | None = None
) -> dict[str, Any]:
    """Return the arguments of a ``Sink`` that these options mean.

    Args:
        texts: by their names, such as ``rateLimit``, ``ratelimit`` or ``rate_limit``; ``command``
            is the template.
        password: of the server.
        tasks: how many load at the same time, unless an option says so.

    Raises:
        ValueError: an option is unknown, or needed, or would show a password; or this process,
            which ends the job, does not know the server.
    """
    known = ("server", "template", "exactly_once", "split", "rejects", "tasks", *OPTIONS)
    found = _options(texts, known)
    if "template" not in found:
        raise ValueError("the option 'command' is needed, such as 'HSET user:{id} {**}'")
    if "exactly_once" in found and "server" not in found and not os.environ.get("REDIS_URL"):
        raise ValueError(
            "with 'exactlyOnce' the driver ends the job, so REDIS_URL must be set there, too, "
            "before its session begins; or name the server by the option 'server'"
        )
    # Tasks may not know how many partitions there are, so another run may have others.
    split = f"run {token_hex(4)}"
    return {"server": None, "password": password, "tasks": tasks, "split": split} | found


def reading_options(
    texts: Mapping[str, str], password: str | None = None, tasks: int | None = None
) -> dict[str, Any]:
    """Return the arguments of a ``Reading`` that these options mean; as ``sink_options()``."""
    hidden = ("schema", "password")
    found = _options(texts, [each.name for each in fields(Reading) if each.name not in hidden])
    if "pattern" not in found:
        raise ValueError("the option 'pattern' is needed, such as 'user:{id}' or 'user:*'")
    # Each partition looks through all keys of a single server.
    partitions = min(tasks or MOST_PARTITIONS, MOST_PARTITIONS)
    return {"password": password, "partitions": partitions} | found


def _options(texts: Mapping[str, str], known: Iterable[str]) -> dict[str, Any]:
    names = {name.replace("_", ""): name for name in known}
    names |= {other: name for other, name in OTHER_NAMES.items() if name in names.values()}
    found = {}
    for given, text in texts.items():
        if given.lower() in ENGINES_OWN:
            continue
        if given.lower() == "path":
            raise ValueError("save() and load() have no path here; name the server by 'server'")
        if given.lower() == "password":
            raise ValueError(f"no option may have a password; {ELSEWHERE}")
        name = names.get(given.replace("_", "").lower())
        if name is None:
            every = ", ".join(sorted(set(names.values())))
            raise ValueError(f"the option {given!r} is unknown; there are {every}")
        found[name] = text if name in TEXTS else _value(text)
    server = found.get("server")
    settings = {} if server is None else Server(server, nodes=True).settings
    if any(settings[name] for name in settings if name.endswith("password")):  # ssl_password, too
        raise ValueError(
            "the URL in the option 'server' has a password, which the engine would show; leave it "
            f"out there, and {ELSEWHERE}"
        )
    if urlsplit(found.get("rejects", "")).password:
        raise ValueError("the URL in 'rejects' has a password, which the engine would show")
    return found


def _value(text: str) -> Any:
    """Return a number, True, False or None for its text, and any other text as it is."""
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text
