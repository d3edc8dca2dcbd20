"""Parse options that an engine passes as text. Names of options are case-insensitive."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

from ..server.preflight import Requirements
from ..server.settings import Server
from .reading import Reading
from .sink import OPTIONS

__all__ = ["reading_options", "sink_options"]

# Options whose values are never parsed as numbers or words.
TEXTS = frozenset(("server", "template", "pattern", "exactly_once", "split", "rejects"))
WORDS = {"true": True, "false": False, "none": None}
# Options of the engine itself, and aliases of our options.
ENGINES_OWN = frozenset(("checkpointlocation",))
OTHER_NAMES = {"command": "template", "url": "server", "numpartitions": "partitions"}
# Maximum default number of partitions to read.
MAX_PARTITIONS = 4
ELSEWHERE = "set REDIS_URL where the tasks run, or spark.fastresp.password"


def sink_options(
    texts: Mapping[str, str], password: str | None = None, tasks: int | None = None
) -> dict[str, Any]:
    """Return the arguments of a ``Sink`` for options in text form.

    Args:
        texts: the options by name. ``rateLimit``, ``ratelimit`` and ``rate_limit`` are the same
            name; so are ``command`` and ``template``.
        password: the server's password.
        tasks: number of tasks that load at the same time, if no option sets it.

    Raises:
        ValueError: an option is unknown or missing, or contains a password, which the engine
            would show. Or ``exactly_once`` is set, and this process, which must end the job, does
            not know the server's URL.
    """
    known = ("server", "template", "exactly_once", "split", "rejects", "tasks", *OPTIONS)
    found = _options(texts, known)
    if "template" not in found:
        raise ValueError("the option 'command' is needed, such as 'HSET user:{id} {**}'")
    if "exactly_once" in found and "server" not in found and not os.environ.get("REDIS_URL"):
        raise ValueError(
            "with 'exactlyOnce' the driver ends the job, so set REDIS_URL for the driver before "
            "its session begins, or name the server by the option 'server'"
        )
    # A new ID for each run, since another run may divide the rows differently.
    split = f"run {token_hex(4)}"
    return {"server": None, "password": password, "tasks": tasks, "split": split} | found


def reading_options(
    texts: Mapping[str, str], password: str | None = None, tasks: int | None = None
) -> dict[str, Any]:
    """Return the arguments of a ``Reading`` for options in text form; see ``sink_options()``."""
    hidden = ("schema", "password")
    found = _options(texts, [each.name for each in fields(Reading) if each.name not in hidden])
    if "pattern" not in found:
        raise ValueError("the option 'pattern' is needed, such as 'user:{id}' or 'user:*'")
    # Each partition scans all keys of a single server.
    partitions = min(tasks or MAX_PARTITIONS, MAX_PARTITIONS)
    return {"password": password, "partitions": partitions} | found


def _options(texts: Mapping[str, str], known: Iterable[str]) -> dict[str, Any]:
    names = {name.replace("_", ""): name for name in known}
    names |= {other: name for other, name in OTHER_NAMES.items() if name in names.values()}
    found = {}
    for given, text in texts.items():
        if given.lower() in ENGINES_OWN:
            continue
        if given.lower() == "path":
            raise ValueError("save() and load() accept no path here; use the option 'server'")
        if given.lower() == "password":
            raise ValueError(f"a password can't be passed as an option; {ELSEWHERE}")
        name = names.get(given.replace("_", "").lower())
        if name is None:
            every = ", ".join(sorted(set(names.values())))
            raise ValueError(f"the option {given!r} is unknown; the options are {every}")
        found[name] = text if name in TEXTS else _value(text)
    server = found.get("server")
    settings = {} if server is None else Server(server, Requirements(nodes=True)).settings
    if any(settings[name] for name in settings if name.endswith("password")):  # or ssl_password
        raise ValueError(
            "the URL in the option 'server' has a password, which the engine would show; remove "
            f"it, and {ELSEWHERE}"
        )
    if urlsplit(found.get("rejects", "")).password:
        raise ValueError("the URL in 'rejects' has a password, which the engine would show")
    return found


def _value(text: str) -> Any:
    """Parse a number, ``true``, ``false`` or ``none``; return any other text unchanged."""
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text
