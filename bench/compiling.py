"""Compile the C programs of the benchmarks."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from turns import NotAvailable


@contextmanager
def compiled(
    source: Path, flags: Sequence[str] = (), lacking: str = ""
) -> Iterator[Path | NotAvailable]:
    """Compile a program into a temporary folder, or return why that fails, in a ``with`` statement.

    Args:
        source: the C file.
        flags: for the compiler and the linker.
        lacking: the package that is missing if the compilation fails, for the message.
    """
    if shutil.which("cc") is None:
        yield NotAvailable("no C compiler was found (Debian: apt install gcc)")
        return
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / source.stem
        command = ["cc", "-O2", "-Wall", "-Wextra", "-o", str(program), str(source), *flags]
        done = subprocess.run(command, capture_output=True, text=True)
        lines = done.stderr.splitlines()
        why = next((line for line in lines if "error" in line or "cannot find" in line), "")
        failed = f"{lacking or f'{source.name} does not compile'}: {why}"
        yield NotAvailable(failed) if done.returncode else program
