"""The layers of the package: compiled modules here, Python modules by import-linter."""

from __future__ import annotations

import re
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from places import ROOT, layers

IMPORT = re.compile(r"^\s*from (\.+)([\w.]*) c?import (\(?[\w ,\n]+)", re.MULTILINE)
TOP_IMPORT = re.compile(r"^from (\.+)([\w.]*) c?import (\([^)]*\)|[^\n]+)", re.MULTILINE)

# The most modules in a chain of imports.
MAX_CHAIN = 20


def imported(source: Path) -> set[str]:
    """Return the folders of the package that a compiled module imports."""
    folders = set()
    for dots, path, names in IMPORT.findall(source.read_text()):
        base = source.relative_to(ROOT).parts[: -len(dots)]
        for name in path.split(".")[:1] if path else re.findall(r"\w+", names):
            folders.add((*base, name)[1])
    return folders


@pytest.mark.parametrize("ending", ["pyx", "pxd"])
def test_compiled_modules_import_from_lower_layers_only(ending: str) -> None:
    order = layers()
    sources = list((ROOT / "fastresp").rglob(f"*.{ending}"))
    assert len(sources) > 10
    seen = set()
    for source in sources:
        own = source.relative_to(ROOT).parts[1]
        for folder in imported(source):
            assert own == folder or order[own] < order[folder], (source, folder)
            seen.add((own, folder))
    assert any(own != folder for own, folder in seen)


def imports() -> dict[tuple[str, ...], set[tuple[str, ...]]]:
    """Return the modules that each module imports; only imports at the top of modules count.

    The others run later, or never: those below TYPE_CHECKING are for annotations only.
    """
    sources = [p for p in (ROOT / "fastresp").rglob("*") if p.suffix in (".py", ".pyx", ".pxd")]
    names = {source: source.relative_to(ROOT).with_suffix("").parts for source in sources}
    modules = set(names.values())
    needs = defaultdict(set)
    for source, name in names.items():
        for dots, path, words in re.findall(TOP_IMPORT, source.read_text()):
            base = (*source.relative_to(ROOT).parts[: -len(dots)], *filter(None, path.split(".")))
            found = {(*base, word) for word in re.findall(r"\w+", words)} & modules
            needs[name] |= (found or {base, (*base, "__init__")} & modules) - {name}
    assert sum(map(len, needs.values())) > 500
    return needs


def test_imports_and_cimports_together_are_short_chains_without_a_cycle() -> None:
    """A reader who follows the imports of a module passes at most this number of modules."""
    needs = imports()
    lengths: dict[tuple[str, ...], int] = {}
    for name in TopologicalSorter(needs).static_order():  # raises CycleError
        lengths[name] = 1 + max((lengths[each] for each in needs.get(name, ())), default=0)
    longest = max(lengths, key=lengths.__getitem__)
    assert lengths[longest] <= MAX_CHAIN, longest


# The writers for engines: the sink, and a file for each engine, named as its users search for it.
ENGINES = {"sink", "dask.py", "dlt.py", "ray.py", "spark.py"}
ADAPTER_LINES = 120


def test_seventeen_entries_at_most() -> None:
    """A reader who searches for something reads all names; engines' users find their engine."""
    files = {
        path.relative_to(ROOT / "fastresp").parts[0] for path in (ROOT / "fastresp").rglob("*.py")
    }
    assert 6 <= len((files | {"py.typed"}) - ENGINES) <= 17


def test_adapters_are_short() -> None:
    """Shared code of several engines is in the sink."""
    files = [ROOT / "fastresp" / name for name in ENGINES if name.endswith(".py")]
    assert all(len(file.read_text().splitlines()) < ADAPTER_LINES for file in files)
