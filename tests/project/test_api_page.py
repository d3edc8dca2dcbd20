"""docs/reference/api.md lists every public name and no internal one."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys

from places import ROOT

sys.path.append(str(ROOT / "docs"))

from check_site import api_names

NAMES = api_names((ROOT / "docs" / "reference" / "api.md").read_text())
# Members of classes have longer names.
TOP = [name for name in NAMES if name.rpartition(".")[0] not in NAMES]
MODULES = (
    "__init__",
    "aio",
    "dask",
    "dlt",
    "ray",
    "redis_py",
    "sink/__init__",
    "spark",
    "testing/__init__",
)
# The engines need not be installed.
IMPORTED = ("fastresp", "fastresp.aio", "fastresp.redis_py", "fastresp.sink", "fastresp.testing")
# Names without an underscore that other modules of fastresp use and users must not: a new one needs
# a decision, and belongs either here or on the page.
INTERNAL = {
    "Checkpoint": "resumes",
    "Chunk": "answered command covered existed fence lane memory parts piece pieces place places "
    "refused rows_after within",
    "CopyPlan": "message",
    "CopyVerifyReport": "UNIT add_changed first message",
    "EncodeError": "message",
    "FastrespError": "hints message",
    "Hashes": "begin count with_ttl",
    "Mirror": "most",
    "ProtocolError": "message",
    "Replicate": "address announced",
    "RedisCli": "connecting finishing flush kill made running stop writing",
    "Report": "behind count_error message uncount_error",
    "RespFile": "arguments blocks check fraction summary",
    "Sink": "check_rewrites once_argument",
    "SourceError": "message",
    "Table": "arguments description estimated_rows for_load fraction has_places limit line_numbers "
    "local_files place query skips_bad_rows",
    "Template": "deleting self_contained",
    "Totals": "log of sum",
    "VerifyReport": "UNIT add first message",
    "Writer": "fill start_at",
}


def exported(module: str) -> list[str]:
    """Return the ``__all__`` of a module without importing it."""
    tree = ast.parse((ROOT / "fastresp" / f"{module}.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            prefix = f"fastresp.{module}".removesuffix("__init__").replace("/", ".").rstrip(".")
            return [f"{prefix}.{name}" for name in ast.literal_eval(node.value)]
    raise AssertionError(f"{module} has no __all__")


def test_names() -> None:
    assert sorted(TOP) == sorted(name for module in MODULES for name in exported(module))


def test_names_in_tracebacks_and_pickles() -> None:
    """A class or function is called what users import, as in its repr."""
    for path in TOP:
        module, _, name = path.rpartition(".")
        if module in IMPORTED:
            found = getattr(importlib.import_module(module), name)
            assert getattr(found, "__qualname__", name) == name, path


def described(kind: type) -> set[str]:
    """Return the attributes that the docstring of a class describes."""
    section = inspect.cleandoc(kind.__doc__ or "").partition("\nAttributes:\n")[2]
    lines = re.findall(r"^    (\w+(?:, \w+)*):", section.partition("\n\n")[0], re.MULTILINE)
    return {name for line in lines for name in line.split(", ")}


def test_members() -> None:
    internal = {}
    for path in TOP:
        module, _, name = path.rpartition(".")
        kind = getattr(importlib.import_module(module), name) if module in IMPORTED else None
        if not inspect.isclass(kind):
            continue
        shown = {each.rpartition(".")[2] for each in NAMES if each.startswith(f"{path}.")}
        assert shown <= set(dir(kind)), path
        public = {each for each in vars(kind) if not each.startswith("_")}
        if hidden := public - shown - described(kind):
            internal[name] = " ".join(sorted(hidden))
    assert internal == INTERNAL
