"""Interruptions of the command line: a report, an exit code, and no traceback."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time

import preloaded
import pytest
from command_line import ENDED, PROGRAM, TRANSPORTS, Endless, wait_for_keys

from fastresp.cli.exit_codes import Exit

pytestmark = pytest.mark.usefixtures("url_in_environment")


class TestInterruptions:
    @pytest.mark.few(2)
    @TRANSPORTS
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_load(self, server, client, transport: str, number: signal.Signals) -> None:
        with Endless("send", "-", "--transport", transport) as process:
            wait_for_keys(server.url)
            process.process.send_signal(number)
            output, words = process.communicate(timeout=30)
        code, word = ENDED[number]
        assert (process.returncode, output) == (code, "")
        assert "Traceback" not in words
        count = client.dbsize()
        assert words.startswith(f"{count:,} commands (")
        assert f"\n{count:,} replies, 0 errors\n" in words
        assert words.endswith(f"fastresp: {word}\n")

    def test_json(self, server, client) -> None:
        with Endless("send", "-", "--transport", "socket", "--json") as process:
            wait_for_keys(server.url)
            process.process.send_signal(signal.SIGINT)
            output, words = process.communicate(timeout=30)
        fields = json.loads(output)
        assert (process.returncode, words, fields["exit_code"]) == (4, "", 4)
        assert fields["commands"] == fields["replies"] == client.dbsize()
        assert fields["error"] == "interrupted"

    @pytest.mark.few(3)
    @pytest.mark.parametrize("wait", [0.0, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.5])
    def test_at_any_time(self, server, resp, wait: float) -> None:
        """No traceback is printed, even while Python is still importing.

        -X importtime shows when our handler is installed: before click is imported.
        """
        path = resp([("SET", f"key:{i}", "x" * 100) for i in range(300_000)])
        command = [sys.executable, "-X", "importtime", "-m", "fastresp", "send", str(path)]
        with preloaded.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            while "click" not in (line := process.stderr.readline()):
                assert line
            time.sleep(wait)
            process.send_signal(signal.SIGINT)
            lines = process.stderr.read().splitlines()
        words = [line for line in lines if not line.startswith("import time:")]
        assert process.returncode in (Exit.OK, Exit.INTERRUPTED), words
        assert "Traceback" not in " ".join(words)
        assert (words[-1] == "fastresp: interrupted") == (process.returncode == Exit.INTERRUPTED)

    def test_under_a_rate_limit(self, server, client, resp) -> None:
        """Little is sent after the signal: the rest of a chunk is sent at the limited rate."""
        path = resp([("SET", f"key:{i}", "x") for i in range(100_000)])
        command = [*PROGRAM, "send", str(path), "--rate-limit", "500"]
        with preloaded.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            wait_for_keys(server.url, 300)
            process.send_signal(signal.SIGINT)
            sent = client.dbsize()
            _, words = process.communicate(timeout=30)
        assert process.returncode == Exit.INTERRUPTED
        assert words.startswith(f"{client.dbsize():,} commands (")
        assert client.dbsize() - sent < 5000

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_under_a_very_low_rate_limit(
        self, server, client, resp, number: signal.Signals
    ) -> None:
        path = resp([("SET", f"key:{i}", "x") for i in range(1000)])
        command = [*PROGRAM, "send", str(path), "--rate-limit", "0.5"]
        with preloaded.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            wait_for_keys(server.url, 1)
            process.send_signal(number)
            _, words = process.communicate(timeout=10)
        assert process.returncode == ENDED[number][0]
        assert words.startswith(f"{client.dbsize()} command")

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_second_signal_ends_the_wait(self, start_server, number: signal.Signals) -> None:
        """The report is still printed."""
        server = start_server()
        with Endless("send", "-", "--server", server.url) as process:
            wait_for_keys(server.url)
            os.kill(server.process.pid, signal.SIGSTOP)
            time.sleep(0.5)  # so that commands wait for replies
            process.process.send_signal(number)
            time.sleep(0.5)
            process.process.send_signal(number)
            _, words = process.communicate(timeout=10)
            os.kill(server.process.pid, signal.SIGCONT)
        code, word = ENDED[number]
        assert process.returncode == code
        assert re.match(r"[\d,]+ commands \(", words)
        assert words.endswith(f"fastresp: {word}\n")

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_signal_while_the_report_is_printed(self, server, resp, number: signal.Signals) -> None:
        """The first signal ends the load; the second ends the process while it prints."""
        path = resp([("SET", f"key:{i}", "x") for i in range(1000)])
        command = [*PROGRAM, "send", str(path), "--rate-limit", "0.5"]
        reader, writer = os.pipe()
        while select.select([], [writer], [], 0)[1]:
            os.write(writer, b"x" * 4096)
        with preloaded.Popen(command, stderr=writer, stdin=subprocess.DEVNULL) as process:
            wait_for_keys(server.url, 1)
            process.send_signal(number)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(2)
            process.send_signal(number)
            assert process.wait(10) == ENDED[number][0]
        os.close(reader)
        os.close(writer)

    def test_ignored_signal_stays_ignored(self, server, client, resp) -> None:
        """nohup, for example, starts a process with an ignored signal."""
        path = resp([("SET", f"key:{i}", "x") for i in range(1000)])
        command = ["nohup", *PROGRAM, "send", str(path), "--rate-limit", "1000"]
        with preloaded.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            wait_for_keys(server.url, 100)
            process.send_signal(signal.SIGHUP)
            process.communicate(timeout=30)
        assert (process.returncode, client.dbsize()) == (Exit.OK, 1000)

    def test_silent_input(self, server, tmp_path) -> None:
        """Ctrl-C ends a load that waits for input that never comes."""
        reader, writer = os.pipe()
        said = tmp_path / "said"
        command = [sys.executable, "-X", "importtime", "-m", "fastresp"]
        command += ["load", "-", "SET {id} 1", "--server", server.url]
        with (
            said.open("wb") as file,
            preloaded.Popen(command, stdin=reader, stderr=file) as process,
        ):
            before = ""
            # Our handler is installed before click is imported; no more imports means that it
            # waits.
            while "click" not in before or before != said.read_text():
                before = said.read_text()
                time.sleep(1)
            process.send_signal(signal.SIGINT)
            process.wait(30)
        os.close(reader)
        os.close(writer)
        words = [each for each in said.read_text().splitlines() if not each.startswith("import ")]
        assert (process.returncode, words) == (4, ["fastresp: interrupted"])
