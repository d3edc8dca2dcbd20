"""The classes of the stubs exist, which stubtest does not check here (see its allowlist)."""

from __future__ import annotations

import ast
import importlib

from places import ROOT


def test_classes() -> None:
    checked = 0
    for stub in (ROOT / "fastresp").rglob("*.pyi"):
        module = importlib.import_module(".".join(stub.relative_to(ROOT).with_suffix("").parts))
        for node in ast.parse(stub.read_text()).body:
            if isinstance(node, ast.ClassDef) and "Protocol" not in map(ast.unparse, node.bases):
                found = getattr(module, node.name)
                names = {each.__name__ for each in found.__mro__} | {"NamedTuple"}
                assert {ast.unparse(each) for each in node.bases} <= names, f"{stub}: {node.name}"
                checked += 1
    assert checked
