"""Check the call path in docs/design.md against a profile."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import FrameType

from places import ROOT, layers

import fastresp
from fastresp.server.local_server import LocalServer

FOLDERS = ("load", "replies", "transports", "sources")
# Modules of these folders that are entered, but do not see the data.
BESIDE = {
    "load/commands.py",  # the names of the template's commands
    "load/search_indexes.py",  # a feature
    "load/server_warnings.py",  # a feature
    "load/paused_settings.py",  # asked by this feature
    "load/checkpoint/feature.py",  # a feature
    "load/checkpoint/description.py",  # a feature
    "replies/locating.py",  # errors
    "sources/several_tables.py",  # asked whether the data is a list of tables
    "transports/base.py",  # opens and closes the connections
    "transports/error_policy.py",  # errors
    "transports/filters.py",  # replies
    "transports/lane.py",  # replies
}


def call_path() -> Iterator[tuple[str, str]]:
    """Yield the module and the function of each stop."""
    text = (ROOT / "docs" / "design.md").read_text()
    section = text.partition("## The call path of a load")[2].partition("\n## ")[0]
    yield from re.findall(r"^\d+\. `(\S+)` `([\w.]+)\(\)`", section, re.MULTILINE)


def called(server: LocalServer) -> list[tuple[str, str]]:
    """Return the functions that a load of three rows calls, in the order of their first call."""
    found: dict[tuple[str, str], None] = {}
    package = Path(fastresp.__file__).parent

    def profile(frame: FrameType, event: str, argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and package in path.parents:
            found.setdefault((path.relative_to(package).as_posix(), frame.f_code.co_qualname))

    rows = [(number, "value") for number in range(3)]
    fastresp.mass_insert(rows, "SET {0} {1}", server.url)  # imports all modules
    sys.setprofile(profile)
    try:
        fastresp.mass_insert(rows, "SET {0} {1}", server.url)
    finally:
        sys.setprofile(None)
    return list(found)


def test_the_call_path_matches_a_profile(server: LocalServer) -> None:
    calls, documented = called(server), list(call_path())
    indexes = [calls.index(stop) for stop in documented]
    assert indexes == sorted(indexes)
    modules = {module for module, _ in documented}
    entered = {module for module, _ in calls if module.partition("/")[0] in FOLDERS}
    assert entered - modules == BESIDE


def test_the_call_path_is_short() -> None:
    stops = list(call_path())
    assert 15 < len(stops) <= 25
    order = layers()
    levels = [order[module.partition("/")[0]] for module, _ in stops]
    climbs = sum(later < earlier for earlier, later in pairwise(levels))
    assert climbs <= 3


def test_the_design_is_short() -> None:
    words = (ROOT / "docs" / "design.md").read_text().split()
    assert 1000 < len([word for word in words if re.search(r"\w", word)]) <= 1500
