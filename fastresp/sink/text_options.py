"""Parse options that an engine passes as text. Names of options are case-insensitive."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import fields
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit

from ..server.options import MODES
from ..server.preflight import Requirements
from ..server.settings import Server
from .partitions import HashPartitions
from .sink import OPTIONS

__all__ = ["reading_options", "sink_options"]

# Options whose values are never parsed as numbers or constants.
TEXTS = frozenset(("server", "template", "pattern", "exactly_once", "split", "rejects"))
CONSTANTS = {"true": True, "false": False, "none": None}
# Options of the engine itself, and aliases of our options.
ENGINE_OPTIONS = frozenset(("checkpointlocation",))
ALIASES = {"command": "template", "url": "server", "numpartitions": "partitions"}
# Maximum default number of partitions to read.
MAX_PARTITIONS = 4
PASSWORD_ADVICE = "set REDIS_URL where the tasks run, or spark.fastresp.password"


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
            would show; or ``exactly_once`` is set, and this process does not know the server's
            URL, which it needs to complete the job.
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
    mode = found.get("mode")
    if mode is not None and mode not in MODES:
        raise ValueError(f"mode must be 'commands', 'merge' or 'serialize', not {mode!r}")
    # A new ID for each run, since another run may divide the rows differently.
    split = f"run {token_hex(4)}"
    return {"server": None, "password": password, "tasks": tasks, "split": split} | found


def reading_options(
    texts: Mapping[str, str], password: str | None = None, tasks: int | None = None
) -> dict[str, Any]:
    """Return the arguments of ``HashPartitions``; see ``sink_options()``."""
    names = {each.name for each in fields(HashPartitions)}
    found = _options(texts, names - {"schema", "password"})
    if "pattern" not in found:
        raise ValueError("the option 'pattern' is needed, such as 'user:{id}' or 'user:*'")
    # Each partition scans all keys of a single server.
    partitions = min(tasks or MAX_PARTITIONS, MAX_PARTITIONS)
    return {"password": password, "partitions": partitions} | found


def _options(texts: Mapping[str, str], known: Iterable[str]) -> dict[str, Any]:
    names = {name.replace("_", ""): name for name in known}
    names |= {other: name for other, name in ALIASES.items() if name in names.values()}
    found = {}
    for option, text in texts.items():
        if option.lower() in ENGINE_OPTIONS:
            continue
        if option.lower() == "path":
            raise ValueError("save() and load() accept no path here; use the option 'server'")
        if option.lower() == "password":
            raise ValueError(f"a password can't be passed as an option; {PASSWORD_ADVICE}")
        name = names.get(option.replace("_", "").lower())
        if name is None:
            every = ", ".join(sorted(set(names.values())))
            raise ValueError(f"the option {option!r} is unknown; the options are {every}")
        found[name] = text if name in TEXTS else _value(text)
    server = found.get("server")
    settings = {} if server is None else Server(server, Requirements(nodes=True)).settings
    if any(settings[name] for name in settings if name.endswith("password")):  # or ssl_password
        raise ValueError(
            "the URL in the option 'server' has a password, which the engine would show; remove "
            f"it, and {PASSWORD_ADVICE}"
        )
    if urlsplit(found.get("rejects", "")).password:
        raise ValueError("the URL in 'rejects' has a password, which the engine would show")
    return found


def _value(text: str) -> Any:
    """Parse a number, ``true``, ``false`` or ``none``; return any other text unchanged."""
    if text.lower() in CONSTANTS:
        return CONSTANTS[text.lower()]
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text
