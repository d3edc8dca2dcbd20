"""Every program in examples/ runs on a real server, succeeds, and leaves no keys behind."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import preloaded
import pytest
import redis
from places import ROOT

from fastresp.server.local_server import LocalServer

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
# Arguments that shorten an example.
ARGUMENTS = {"tshark_buffer.py": ["--seconds", "2"]}

RUN = "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"


def test_there_are_examples() -> None:
    assert EXAMPLES
    assert set(ARGUMENTS) <= {example.name for example in EXAMPLES}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_example(example: Path, server: LocalServer, client: redis.Redis, tmp_path: Path) -> None:
    done = preloaded.run(
        [sys.executable, "-c", RUN, str(example), *ARGUMENTS.get(example.name, ())],
        cwd=tmp_path, env={**os.environ, "REDIS_URL": server.url},
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) >= 3
    assert client.dbsize() == 0


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_header(example: Path) -> None:
    """The docstring says what the example shows and how to run it."""
    header = example.read_text().partition('"""')[2].partition('"""')[0]
    assert "\n\nShows " in header
    assert f"\n    python examples/{example.name}\n" in header
