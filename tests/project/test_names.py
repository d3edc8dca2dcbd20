"""Names that explain themselves, objects that set only their own attributes, and few files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from places import ROOT

PACKAGE = ROOT / "fastresp"
SOURCES = [path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".pyx", ".pxd", ".pyi")]

# Names that are unclear without their context. As modules and classes:
UNCLEAR = {
    "former", "kept", "lent", "whole", "early", "asks", "done", "held", "moves", "apart", "spread",
    "losing", "resent", "refusals", "given", "Giving", "Asking", "Looking", "carrier", "wishes",
    "keeps", "judged",
}  # fmt: skip
# As functions and constants:
UNCLEAR_FUNCTIONS = {
    "_tending", "_levelling", "_following", "MIN_WAITED", "has_no_columns", "rows_about",
}  # fmt: skip
# Unclear names that are still used. The set may only shrink.
REMAINING: set[str] = set()

# Objects of these folders set only their own attributes.
FOLDERS = ("load", "server", "transports")

# Lower these when files are merged.
MAX_FILES = 294
MAX_EXTENSIONS = 42

# Why an attribute of another object may be set: objects, or attributes. They may only shrink.
SET_BY_OTHERS = {
    "counters are filled by the code that counts": (
        "report", "live_report", "_report", "inquiry", "sample", "node.memory", "node.share",
    ),
    "an exception gets its report before it propagates": ("error.report",),
    "a chunk has flags for its outcome": (
        "fence.answered", "fence.existed", "fence.refused", "held.fence_refused", "scanner.asked",
    ),
    "Lanes replaces lost lanes": (
        "lane.lost_at", "lane.replacement", "lane.timeout",
    ),
    "Lanes, Nodes and the ledger share when to look for nodes, and why": (
        "lanes.after", "lanes.look_at", "_ledger.denied", "_ledger.message", "ledger.message",
    ),
    "the rate starts with the connections": ("pace.start",),
    "new connections of a checkpoint replace lost ones": ("markers.fenced", "markers.links"),
    "a verification plans its reads before its chunks are encoded": (
        "chunks.planner", "planner.over_keys",
    ),
    "a forked child must not wait for its parent's process": ("process.returncode",),
}  # fmt: skip


CLASS = re.compile(r"^ *(?:cdef |ctypedef )?(?:class|struct|enum) +(\w+)", re.MULTILINE)
FUNCTION = re.compile(r"^ *(?:async )?def +(\w+)|^([A-Z]\w+) *[:=]", re.MULTILINE)


def test_unclear_names_are_gone() -> None:
    texts = [path.read_text() for path in SOURCES]
    modules = {part for path in SOURCES for part in path.relative_to(PACKAGE).with_suffix("").parts}
    classes = {name for text in texts for name in CLASS.findall(text)}
    functions = {name for text in texts for found in FUNCTION.findall(text) for name in found}
    assert len(modules) > 100 and len(classes) > 100 and len(functions) > 1000
    assert (modules | classes) & UNCLEAR | functions & UNCLEAR_FUNCTIONS == REMAINING


def created(function: ast.AST) -> set[str]:
    """Return the variables that a function assigns a new object: what a call returns."""
    names = {"self", "cls"}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if isinstance(node.value, ast.Call):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
            names.add(node.optional_vars.id)
    return names


def assigned(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each assignment to an attribute of another object."""
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            own = created(function)
            for node in ast.walk(function):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    of = node.value
                    if not (isinstance(of, ast.Name) and of.id in own):
                        yield node.lineno, ast.unparse(node)


@pytest.mark.parametrize(
    "source",
    [
        "def f(other): other.attribute = 1",
        "def f(other): other.attribute += 1",
        "def f(other): other.a, self.b = 1, 2",
        "def f(self): self.other.attribute = 1",
        "def f(other):\n    found = other.part\n    found.attribute = 1",
    ],
)
def test_assignments_to_other_objects_are_found(source: str) -> None:
    assert len([*assigned(source)]) == 1


@pytest.mark.parametrize(
    "source",
    [
        "def f(self): self.attribute = 1",
        "def f(cls): cls.attribute = 1",
        "def f():\n    new = Thing()\n    new.attribute = 1",
        "def f():\n    with Thing() as new: new.attribute = 1",
        "def f(other): other.attribute[0] = 1",
    ],
)
def test_own_and_new_objects_may_be_changed(source: str) -> None:
    assert not [*assigned(source)]


def test_no_object_sets_attributes_of_another() -> None:
    allowed = {name for names in SET_BY_OTHERS.values() for name in names}
    used, found = set(), []
    for path in sorted(path for folder in FOLDERS for path in (PACKAGE / folder).rglob("*.py")):
        for line, text in assigned(path.read_text()):
            owner, attribute = text.split(".")[-2:]
            names = {owner, f"{owner}.{attribute}"} & allowed
            used |= names
            if not names:
                found.append(f"{path.relative_to(ROOT)}:{line}: {text}")
    assert not found, "\n".join(["set it in a method, or pass it to the constructor:", *found])
    assert used == allowed, "remove these from SET_BY_OTHERS"


def test_few_files_and_extensions() -> None:
    assert len(SOURCES) <= MAX_FILES
    assert len([path for path in SOURCES if path.suffix == ".pyx"]) <= MAX_EXTENSIONS
