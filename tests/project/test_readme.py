"""Every Python example in the README, and in pages with independent examples, runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import redis
from places import ROOT

from fastresp.server.local_server import LocalServer

# tests/project/test_docs.py runs the pages whose examples build on each other.
PAGES = [
    ROOT / "README.md",
    *(ROOT / "docs" / name for name in ("decisions.md", "design.md")),
    *(ROOT / "docs" / "guides" / name for name in ("errors.md", "redis-py.md")),
]
EXAMPLES = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5
    assert any(str(example.id).startswith("README.md") for example in EXAMPLES)


def test_the_readme_is_short() -> None:
    # Without comments, and the lines of tables.
    text = re.sub(r"<!--.*?-->|\|", "", (ROOT / "README.md").read_text())
    assert 300 < len(text.split()) <= 700


@pytest.mark.parametrize("example", EXAMPLES)
def test_example(
    example: str,
    server: LocalServer,
    client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Run the example in a folder of its own, against an empty server."""
    monkeypatch.setenv("REDIS_URL", server.url)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "users.csv").write_text("id,name,email\n1,Ann,ann@example.org\n2,Bo,\n")
    names = {"__name__": "__main__"}
    try:
        exec(compile(example, "example", "exec"), names)
    finally:
        names.clear()  # otherwise the example's functions would keep its connections open
