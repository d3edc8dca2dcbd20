"""Run all benchmarks, one after another, and keep the results for ``report.py``.

Leave the machine idle meanwhile. Each script writes ``bench/results/NAME.json`` in pyperf's format.
A script whose results exist is skipped, so the same command resumes an interrupted run; ``--again``
runs all scripts. ``machine.json`` in the same folder has the facts of the machine, and for each
script its date, commit, versions of programs and packages, and how busy the processors were before.

Without ``--fast``, each script that has a row with a spread above 25% (maximum minus minimum,
divided by the median) runs once more at the end. For each such row, the run with the smaller spread
is kept.
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
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil
from results import load, merged, missing_path, save

from fastresp import TransportError
from fastresp.server.local_server import find_program

HERE = Path(__file__).parent
RESULTS = HERE / "results"
MACHINE = "machine.json"
PACKAGES = (
    *("fastresp", "redis", "hiredis", "pyarrow", "numpy", "pyperf", "pyspark"),
    *("valkey-glide", "coredis", "redisvl", "adbc-driver-redis"),
)
# A script that takes longer hangs; the longest takes about 20 minutes.
TIMEOUT_S = 3600
# Seconds between Ctrl-C and the kill of running processes.
GRACE_S = 10
# Seconds for which the load of the processors is measured before each script.
BEFORE_S = 2


@dataclass(frozen=True)
class Benchmark:
    """A script and its arguments: for each run, for a fast run, and for a smoke test."""

    script: str
    always: str = ""
    fast: str = "--fast"
    smoke: str = "--rounds 1"

    def command(self, mode: str) -> list[str]:
        extra = {"full": "", "fast": self.fast, "smoke": self.smoke}[mode]
        return ["python", f"bench/{self.script}.py", *shlex.split(f"{self.always} {extra}")]


TCP = "--tcp --only 'no generation,fastresp redis-cli,fastresp socket'"
# In this order: the most important first, in case the run is interrupted.
BENCHMARKS = {
    "encode": Benchmark("encode", smoke="--rounds 1 --commands 2000"),
    "push": Benchmark("push", fast="--rounds 6", smoke="--rounds 1 --commands 20000"),
    "buffer": Benchmark("buffer", smoke="--rounds 1 --operations 2000"),
    "lists": Benchmark("lists", smoke="--rounds 1 --items 20000"),
    "columns": Benchmark("columns", smoke="--rounds 1 --commands 20000 --vectors 1000"),
    "replies": Benchmark("replies", smoke="--rounds 1"),
    "push-tcp": Benchmark("push", TCP, smoke="--rounds 1 --commands 20000"),
    "users": Benchmark("users", smoke="--rounds 1"),
    "redis_py": Benchmark("redis_py", smoke="--rounds 1"),
    "load": Benchmark("load", smoke="--rows 20000 --vectors 1000 --lines 20000 --rounds 1"),
    "redis_benchmark": Benchmark(
        "redis_benchmark", fast="--rounds 3", smoke="--rounds 1 --commands 200"
    ),
    "pipelining": Benchmark("pipelining", smoke="--rounds 1 --commands 200"),
    "workflow": Benchmark("workflow", smoke="--rounds 1 --users 100"),
    "shares": Benchmark("shares", smoke="--rounds 1 --iterations 1"),
    "past": Benchmark("past", fast="--rounds 6", smoke="--rounds 1 --rows 2000"),
    "rdb": Benchmark("rdb", smoke="--rounds 1 --rows 2000"),
    "himport": Benchmark("himport", smoke="--rounds 1 --rows 2000"),
    "snapshots": Benchmark("snapshots", smoke="--rounds 1 --rows 2000"),
    "copying": Benchmark("copying", smoke="--rounds 1 --keys 2000"),
    "verify": Benchmark("verify", smoke="--rounds 1 --rows 2000"),
    "scale": Benchmark(
        "scale",
        # Fewer commands would measure how long 100 connections take to open.
        fast="--fast --commands 5000000 --most 100000000",
        smoke="--rounds 1 --commands 5000 --most 5000 --repeat 1 --rows 2000 --primaries 3",
    ),
    "checkpoint": Benchmark("checkpoint", smoke="--rounds 1 --rows 2000"),
    "engines": Benchmark("engines", smoke="--rounds 1 --rows 2000"),
    "stall": Benchmark("stall", smoke="--rounds 1 --rows 2000"),
    "ways": Benchmark("ways", fast="--rounds 10", smoke="--rounds 1 --rows 2000"),
    "peers": Benchmark("peers", fast="--rounds 5", smoke="--rounds 1 --commands 2000 --rows 2000"),
    "memory": Benchmark("memory", fast="--fast --items 10000000", smoke="--rounds 1 --items 10000"),
}


def machine(mode: str) -> dict[str, object]:
    """Return the facts about the machine that a reader needs; no host names."""
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
        "commands": {name: shlex.join(each.command(mode)) for name, each in BENCHMARKS.items()},
    }


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    found = re.search(r"model name\s*: (.*)", text)
    return found[1] if found else platform.machine()


def versions() -> dict[str, str]:
    """Return the versions of the installed programs and packages."""
    found = {}
    for program in filter(None, map(find_program, ("server", "cli", "benchmark"))):
        words = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
        number = re.search(r"\d+\.\d+\.\d+", words)
        found[Path(program).name] = number[0] if number else "?"
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _commit() -> str:
    command = ["git", "-C", str(HERE), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def run(command: list[str]) -> int | str:
    """Run a script; return its exit code, or the reason for ending it. Nothing is left running."""
    process = subprocess.Popen(command, cwd=HERE.parent, start_new_session=True)
    try:
        return process.wait(TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"still running after {TIMEOUT_S:,} s"
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a script and all its children: first with Ctrl-C, so that it can clean up."""
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
    """Return whether a script has results, or only the reasons for missing rows."""
    path = folder / f"{name}.json"
    return path.exists() or missing_path(path).exists()


def run_into(command: list[str], path: Path) -> int | str:
    """Run a script that writes its results to a path; return why it failed, or 0."""
    remove(path)
    failed = run([sys.executable, *command[1:], "-o", str(path)])
    return failed or (0 if is_there(path.stem, path.parent) else "it wrote no results")


def remove(path: Path) -> None:
    """Remove a file of results, and the file of its missing rows."""
    for each in (path, missing_path(path)):
        each.unlink(missing_ok=True)


def replace(new: Path, old: Path) -> None:
    """Replace old results with new ones, including the file of missing rows."""
    for each, place in ((new, old), (missing_path(new), missing_path(old))):
        if each.exists():
            each.replace(place)
        else:
            place.unlink(missing_ok=True)


def measure_noisy_again(name: str, command: list[str], first: Path) -> bool:
    """Run a script once more if a row is noisy; keep the run with the smaller spread.

    Returns:
        Whether the results are final: no row was noisy, or the second run succeeded.
    """
    rows = list(load(first))
    noisy = sum(row.noisy for row in rows)
    if not noisy:
        return True
    print(f"{name}: {noisy} of {len(rows)} rows have a spread above 25%; once more", flush=True)
    second = first.with_name(f"{name}.again.json")
    failed = run_into(command, second)
    if failed:
        print(f"{name} failed the second time, the first run is kept: {failed}", file=sys.stderr)
    else:
        both = merged(rows, load(second))
        remove(second)
        save(second, both)
        replace(second, first)
    remove(second)
    return not failed


def measure(name: str, mode: str, folder: Path) -> bool:
    path, parts = folder / f"{name}.json", folder / f"{name}.part.json"
    command = BENCHMARKS[name].command(mode)
    print(f"\n== {name}: {shlex.join(command)}", flush=True)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    facts = {"started": started, "mode": mode, "commit": _commit(), "versions": versions()}
    facts["busy"] = psutil.cpu_percent(0.1 if mode == "smoke" else BEFORE_S)
    start = time.monotonic()
    if failed := run_into(command, parts):
        print(f"{name} failed: {failed}", file=sys.stderr)
        return False
    replace(parts, path)
    facts["seconds"] = round(time.monotonic() - start)
    found = json.loads((folder / MACHINE).read_text())
    found["runs"][name] = facts
    write(folder, found)
    print(f"{name} took {facts['seconds']} s", flush=True)
    return True


def settle(name: str, folder: Path) -> None:
    """Measure the noisy rows of a script again, unless this was done before."""
    facts = json.loads((folder / MACHINE).read_text())
    # If the facts of a run are missing, the run was interrupted.
    run = facts["runs"].get(name, {"settled": True})
    if run.get("settled"):
        return
    command = BENCHMARKS[name].command("full")
    if measure_noisy_again(name, command, folder / f"{name}.json"):
        run["settled"] = True
        write(folder, facts)


def write(folder: Path, machine: dict[str, object]) -> None:
    (folder / MACHINE).write_text(json.dumps(machine, indent=1) + "\n")


def prepare(folder: Path, mode: str, anew: Sequence[str]) -> None:
    """Write ``machine.json``; end the program if the folder has results of another mode."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = machine(mode)
    kept = [name for name in BENCHMARKS if is_there(name, folder) and name not in anew]
    if kept:
        runs = json.loads((folder / MACHINE).read_text())["runs"]
        if others := {runs[name]["mode"] for name in kept if name in runs} - {mode}:
            sys.exit(
                f"{folder} has results of a {others.pop()} run; choose another folder with "
                "--results, or measure everything anew with --again and without --only"
            )
        facts["runs"] = runs
    write(folder, facts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--fast", action="store_true", help="fewer rounds, and no second run")
    how.add_argument("--smoke", action="store_true", help="only check that all scripts work")
    parser.add_argument("--only", type=lambda names: names.split(","), help="run only these")
    parser.add_argument("--again", action="store_true", help="also run scripts that have results")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the results")
    args = parser.parse_args()
    args.results = args.results.absolute()
    names = args.only or list(BENCHMARKS)
    if unknown := set(names) - set(BENCHMARKS):
        parser.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(BENCHMARKS)}")
    mode = "fast" if args.fast else "smoke" if args.smoke else "full"
    prepare(args.results, mode, names if args.again else ())
    failed = []
    for name in names:
        if is_there(name, args.results) and not args.again:
            print(f"== {name} has results already")
        elif not measure(name, mode, args.results):
            failed.append(name)
    for name in names if mode == "full" else ():
        if is_there(name, args.results):
            settle(name, args.results)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; run the same command to try them again")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted; run the same command to resume")
    except TransportError as error:  # a variable such as FASTRESP_CLI does not name a program
        sys.exit(str(error))
