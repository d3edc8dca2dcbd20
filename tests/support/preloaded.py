"""Processes for tests, forked from a process that has imported fastresp.

The imports take 0.3 s of CPU time, and a fork 0.02 s. Signals, streams and exit codes work as in
any process. Tests of imports, of memory and of Python's options start new processes instead.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import inspect
import io
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["PROGRAM", "Popen", "run"]

MODULE = [sys.executable, "-m", "fastresp"]
CODE = [sys.executable, "-c"]
PROGRAM = [str(Path(sys.executable).with_name("fastresp"))]
if not Path(PROGRAM[0]).exists():
    PROGRAM = MODULE
MODULES = [
    "fastresp.aio", "fastresp.cli.app", "fastresp.cli.demo.comparison", "fastresp.cli.doctor",
    "fastresp.cli.load", "fastresp.cli.pop", "fastresp.cli.files",
    "fastresp.cli.unload", "fastresp.cli.verify", "fastresp.sources.files.formats", "pyarrow.csv",
    "pyarrow.dataset", "pyarrow.json", "pyarrow.parquet", "rich.progress",
]  # fmt: skip
# Prefixes of variables that Python, or a library that it uses, reads only at its start.
AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "ASAN_")
MAX_BYTES = 1 << 17
PR_SET_CHILD_SUBREAPER = 36


def at_start(environment: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in environment.items() if name.startswith(AT_START)}


class Parent:
    """The process from which the others are forked."""

    def __init__(self) -> None:
        self.environment = at_start(dict(os.environ))
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
            )  # fmt: skip
        atexit.register(self._end)

    def start(self, request: dict[str, Any], files: list[int]) -> int:
        """Start a child process with these files as its streams; return its pid."""
        with self._lock:
            set_subreaper(True)
            try:
                socket.send_fds(self._socket, [json.dumps(request).encode()], files)
                pid = int(self._socket.recv(100))
                assert self._socket.recv(100) == b"orphaned"
            finally:
                set_subreaper(False)
        return pid

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()


def set_subreaper(wanted: bool) -> None:
    """Set whether this process becomes the parent of orphaned descendants."""
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0):
        raise OSError("prctl failed")


def umask() -> int:
    found = os.umask(0)
    os.umask(found)
    return found


class Popen(subprocess.Popen[Any]):
    """``subprocess.Popen`` for ``[*PROGRAM, ...]`` and ``[sys.executable, "-c", code, ...]``."""

    parent: Parent | None = None

    def _execute_child(self, *given: Any) -> None:
        base = subprocess.Popen._execute_child  # type: ignore[attr-defined]
        names = inspect.signature(base).bind(self, *given).arguments
        words = [os.fsdecode(word) for word in names["args"]]
        environment = dict(os.environ if names["env"] is None else names["env"])
        parent = Popen.parent = Popen.parent or Parent()
        if (
            not any(words[: len(known)] == known for known in (PROGRAM, MODULE, CODE))
            or at_start(environment) != parent.environment
            or names["preexec_fn"] or names["pass_fds"] or names["umask"] != -1
        ):  # fmt: skip
            base(self, *given)
            return
        request = {
            "words": words,
            "environment": environment,
            "folder": os.fspath(names["cwd"] or os.getcwd()),
            "umask": umask(),
            "session": names["start_new_session"],
            "group": names["process_group"],
        }
        ends = [names["p2cread"], names["c2pwrite"], names["errwrite"]]
        files = [standard if end == -1 else end for standard, end in enumerate(ends)]
        self.pid = parent.start(request, files)
        self._child_created = True
        self._close_pipe_fds(*(names[each] for each in (
            "p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite"
        )))  # fmt: skip


def run(
    command: list[str],
    *,
    input: str | bytes | None = None,  # noqa: A002
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """Run a program like ``subprocess.run()``."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with Popen(command, **options) as process:
        try:
            output, words = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, output, words)
    if check:
        done.check_returncode()
    return done


def serve(requests: socket.socket) -> None:
    """Fork a process for each request; return in the child, and when the requests end."""
    for module in MODULES:
        importlib.import_module(module)
    # pyarrow's jemalloc starts its thread again after a fork.
    threads = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    assert len(threads) - threads.count("jemalloc_bg_thd\n") == 1, threads
    gc.freeze()
    while True:
        message, files, *_ = socket.recv_fds(requests, MAX_BYTES, 3)
        if not message:
            return
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid == 0:
                requests.close()
                become(json.loads(message), files)
                return
            requests.send(b"%d" % pid)
            os._exit(0)
        os.waitpid(between, 0)
        requests.send(b"orphaned")
        for file in files:
            os.close(file)


def become(request: dict[str, Any], files: list[int]) -> None:
    """Run a program in this process, as if Python had just been started with it."""
    if request["session"]:
        os.setsid()
    if request["group"] not in (None, -1):
        os.setpgid(0, request["group"])
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(3, 1024)
    os.umask(request["umask"])
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.stdin = sys.__stdin__ = like(sys.stdin, 0, "rb")
    sys.stdout = sys.__stdout__ = like(sys.stdout, 1, "wb")
    sys.stderr = sys.__stderr__ = like(sys.stderr, 2, "wb")
    words = request["words"]
    main = sys.modules["__main__"] = ModuleType("__main__")
    if words[:2] == CODE:
        sys.argv, sys.path[0] = ["-c", *words[3:]], ""
        exec(compile(words[2], "<string>", "exec"), main.__dict__)
    else:
        started = PROGRAM if words[: len(PROGRAM)] == PROGRAM else MODULE
        sys.argv, sys.path[0] = [PROGRAM[0], *words[len(started) :]], str(Path(PROGRAM[0]).parent)
        from fastresp.__main__ import main as run_command_line

        run_command_line()


def like(stream: Any, file: int, mode: str) -> io.TextIOWrapper:
    """Return a text stream over a file, with the encoding and buffering of an original stream."""
    unbuffered = stream.write_through
    buffering = 0 if unbuffered and mode == "wb" else -1
    raw = open(file, mode, buffering=buffering, closefd=False)  # noqa: SIM115
    return io.TextIOWrapper(
        raw, encoding=stream.encoding, errors=stream.errors, write_through=unbuffered,
        line_buffering=file == 2 or os.isatty(file),
    )  # fmt: skip


def end(code: int) -> None:
    """Exit like Python, but don't free objects, which would take 0.07 s of CPU time."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        sys.exit(code)  # Python reports it
    ctypes.PyDLL(None).exit(code)  # runs exit handlers of libraries, which stop their threads


if __name__ == "__main__":
    try:
        serve(socket.socket(fileno=int(sys.argv[1])))
    except SystemExit as ended:
        if isinstance(ended.code, int | None):
            end(ended.code or 0)
        raise
    end(0)
