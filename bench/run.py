"""Run all benchmarks, one after another, and keep what they measure, for ``report.py``.

    python bench/run.py               # some two hours
    python bench/run.py --fast        # about 40 minutes
    python bench/run.py --only push,lists

What is there already is not measured again: a run that was broken off goes on where it stopped.
``--again`` measures it anew. Each script writes ``bench/results/NAME.json``, as pyperf does; the
facts of the machine are in ``machine.json`` beside them, and of each script when it ran, of which
commit, with which versions of programs and packages, and how busy the processors were just before,
in percent. The machine should do nothing else then.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil
from results import missing_path

from fastresp.server.programs import find_program

HERE = Path(__file__).parent
RESULTS = HERE / "results"
MACHINE = "machine.json"
PACKAGES = ("fastresp", "redis", "hiredis", "pyarrow", "numpy", "pyperf")
# Seconds after which a script is taken to hang; the longest takes some 10 minutes.
TIMEOUT_S = 3600
# Between a Ctrl-C and the end of what does not heed it.
GRACE_S = 10
# So long the processors are looked at before each script.
BEFORE_S = 2


@dataclass(frozen=True)
class Benchmark:
    """A script and its arguments: always, for a fast run, and to see that it works at all."""

    script: str
    always: str = ""
    fast: str = "--fast"
    smoke: str = "--rounds 1"

    def command(self, mode: str) -> list[str]:
        """What is run, without the output."""
        extra = {"full": "", "fast": self.fast, "smoke": self.smoke}[mode]
        return ["python", f"bench/{self.script}.py", *shlex.split(f"{self.always} {extra}")]


ONE_VALUE = "--debug-single-value"
TCP = "--tcp --only 'no generation,fastresp redis-cli,fastresp socket'"
# In this order; those that say most come first, should the time run out.
BENCHMARKS = {
    "encode": Benchmark("encode", "-q", smoke=ONE_VALUE),
    "push": Benchmark("push", smoke="--rounds 1 --commands 20000"),
    "buffer": Benchmark("buffer", smoke="--rounds 1 --operations 2000"),
    "lists": Benchmark("lists", smoke="--rounds 1 --items 20000"),
    "columns": Benchmark("columns", "-q", smoke=ONE_VALUE),
    "replies": Benchmark("replies", "-q", smoke=ONE_VALUE),
    "push-tcp": Benchmark("push", TCP, smoke="--rounds 1 --commands 20000"),
    "users": Benchmark("users", smoke="--rounds 1"),
    "redis_py": Benchmark("redis_py", smoke="--rounds 1"),
    "load": Benchmark("load", smoke="--rows 20000 --vectors 1000 --rounds 1"),
    "redis_benchmark": Benchmark("redis_benchmark", smoke="--rounds 1 --commands 200"),
    "pipelining": Benchmark("pipelining", smoke="--rounds 1 --commands 200"),
    "workflow": Benchmark("workflow", smoke="--rounds 1 --users 100"),
    "shares": Benchmark("shares", smoke="--rounds 1 --iterations 1"),
    "peers": Benchmark("peers", smoke="--rounds 1 --commands 2000"),
    "memory": Benchmark("memory", fast="--fast --items 10000000", smoke="--rounds 1 --items 10000"),
}


def machine(mode: str, names: Iterable[str]) -> dict[str, object]:
    """What a reader of the results has to know of where they come from; no names of hosts."""
    system = platform.freedesktop_os_release() if sys.platform == "linux" else {}
    kernel = platform.release().partition("-")[0]
    return {
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "os": f"{system.get('PRETTY_NAME', platform.system())}, kernel {kernel}",
        "python": platform.python_version(),
        "fast": mode != "full",
        "runs": {},
        "commands": {name: shlex.join(BENCHMARKS[name].command(mode)) for name in names},
    }


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    found = re.search(r"model name\s*: (.*)", text)
    return found[1] if found else platform.machine()


def versions() -> dict[str, str]:
    """Of the programs and packages that take part."""
    return _programs() | _packages()


def _packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _programs() -> dict[str, str]:
    found = {}
    for role in ("server", "cli", "benchmark"):
        program = find_program(role, f"FASTRESP_{role.upper()}")
        if program is not None:
            words = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
            number = re.search(r"\d+\.\d+\.\d+", words)
            found[Path(program).name] = number[0] if number else "?"
    return found


def _commit() -> str:
    command = ["git", "-C", str(HERE), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def run(command: list[str]) -> int | str:
    """Run a script; its exit code, or what else it ended by. All that it started ends with it."""
    process = subprocess.Popen(command, cwd=HERE.parent, start_new_session=True)
    try:
        return process.wait(TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"not ended after {TIMEOUT_S:,} s"
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a script, and what it left: by a Ctrl-C first, for it to tidy up."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    # Servers have process groups of their own.
    for each in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if os.getsid(each.pid) == process.pid:
                each.kill()
    process.wait()


def is_there(name: str, folder: Path) -> bool:
    """Whether a script has been run; its file may hold only what could not be measured."""
    path = folder / f"{name}.json"
    return path.exists() or missing_path(path).exists()


def measure(name: str, mode: str, folder: Path) -> bool:
    """Run one script; whether it did what it should. What it wrote is kept only then."""
    path, parts = folder / f"{name}.json", folder / f"{name}.part.json"
    command = BENCHMARKS[name].command(mode)
    print(f"\n== {name}: {shlex.join(command)}", flush=True)
    for each in (parts, missing_path(parts)):
        each.unlink(missing_ok=True)
    facts = {"started": now(), "mode": mode, "commit": _commit(), "versions": versions()}
    facts["busy"] = psutil.cpu_percent(BEFORE_S)
    start = time.monotonic()
    failed = run([sys.executable, *command[1:], "-o", str(parts)])
    if failed or not is_there(parts.stem, folder):
        print(f"{name} failed: {failed or 'it wrote nothing'}", file=sys.stderr)
        return False
    for new, old in ((parts, path), (missing_path(parts), missing_path(path))):
        old.unlink(missing_ok=True)
        if new.exists():
            new.replace(old)
    facts["seconds"] = round(time.monotonic() - start)
    machine = json.loads((folder / MACHINE).read_text())
    machine["runs"][name] = facts
    write(folder, machine)
    print(f"{name} took {facts['seconds']} s", flush=True)
    return True


def write(folder: Path, machine: dict[str, object]) -> None:
    (folder / MACHINE).write_text(json.dumps(machine, indent=1) + "\n")


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def prepare(folder: Path, mode: str, anew: Sequence[str]) -> None:
    """Write down what the machine is; end the program if what is kept is of another mode.

    Args:
        folder: of the results.
        mode: of this run.
        anew: what is measured again, if it is there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    facts = machine(mode, BENCHMARKS)
    kept = [name for name in BENCHMARKS if is_there(name, folder) and name not in anew]
    if kept:
        runs = json.loads((folder / MACHINE).read_text())["runs"]
        if others := {runs[name]["mode"] for name in kept if name in runs} - {mode}:
            sys.exit(
                f"{folder} has results of a {others.pop()} run; choose another folder with "
                "--results, or measure all of them anew with --again and without --only"
            )
        facts["runs"] = runs
    write(folder, facts)


def main() -> None:
    """Run what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--fast", action="store_true", help="fewer values of each")
    how.add_argument("--smoke", action="store_true", help="only see that all scripts work")
    parser.add_argument("--only", type=lambda names: names.split(","), help="these, by name")
    parser.add_argument("--again", action="store_true", help="what is there already, too")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results")
    args = parser.parse_args()
    args.results = args.results.absolute()
    names = args.only or list(BENCHMARKS)
    if unknown := set(names) - set(BENCHMARKS):
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    mode = "fast" if args.fast else "smoke" if args.smoke else "full"
    prepare(args.results, mode, names if args.again else ())
    failed = []
    for name in names:
        if is_there(name, args.results) and not args.again:
            print(f"== {name} is there already")
        elif not measure(name, mode, args.results):
            failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; the same command tries these again")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on where it stopped")
