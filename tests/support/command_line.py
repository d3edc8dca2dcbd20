"""The command line as the tests run it: in their process, or as the installed command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner, Result

from fastresp.cli.app import app

PROGRAM = [str(Path(sys.executable).with_name("fastresp"))]
if not Path(PROGRAM[0]).exists():
    PROGRAM = [sys.executable, "-m", "fastresp"]


def invoke(*arguments: object, stdin: str | bytes | None = None) -> Result:
    """Run a command in this process."""
    result = CliRunner().invoke(app, [str(each) for each in arguments], input=stdin)
    assert "Traceback" not in result.output
    return result


def run(
    *arguments: object, stdin: bytes = b"", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the installed command."""
    done = subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=200,
        env=os.environ | {"COLUMNS": "80"} | environment,
    )
    output, words = done.stdout.decode(errors="replace"), done.stderr.decode()
    assert "Traceback" not in words or "--traceback" in arguments
    return subprocess.CompletedProcess(done.args, done.returncode, output, words)
