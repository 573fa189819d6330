"""The suites: which tests there are, and how some of them are run in a given environment.

A suite has units, which run beside each other; a unit's outcomes are a dictionary from a test's name to a word. A test that
does not end is killed and `hung`, one that takes its process down has `crashed`; both end only themselves.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# A test of CPython says nothing while it runs; the longest takes half a minute on an idle machine.
SILENCE_SECONDS = 180
STRESSOR_SECONDS = 120
TOKIO_SECONDS = 60


def run(command, environment, log, seconds):
    """The exit code, or None when the time was up. Whatever the command left behind is ended."""
    with tempfile.TemporaryDirectory(prefix="mqttshim-foreign.") as folder:
        process = subprocess.Popen(
            command, cwd=folder, env=environment | {"TMPDIR": folder}, stdin=subprocess.DEVNULL,
            stdout=log, stderr=log, start_new_session=True)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            end(process)


def end(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


class CPython:
    name = "CPython"
    # Most tests wait for time to pass.
    beside_each_other = 4
    # The long ones first, so that none is alone at the end. Those of test_asyncio are units of their own.
    MODULES = ("test_socket test_ssl test_eintr test_selectors test_poll test_select test_epoll test_socketserver "
               "test_httpservers test_fork1").split()

    def __init__(self, python):
        self.python = python
        listing = subprocess.run(
            [python, "-c", "import os, test.test_asyncio as t; print(*os.listdir(os.path.dirname(t.__file__)))"],
            check=True, capture_output=True, text=True).stdout.split()
        asyncio = [f"test_asyncio.{file[:-3]}" for file in listing if re.fullmatch(r"test_\w+\.py", file)]
        self.units = [*self.MODULES[:3], *sorted(asyncio), *self.MODULES[3:]]

    def run(self, unit, environment, log, only=()):
        wanted = [test for test in only if test.startswith(f"test.{unit}.")]
        if only and not wanted:
            return {}
        with tempfile.TemporaryDirectory(prefix="mqttshim-foreign.") as folder:
            path = os.path.join(folder, "results")
            open(path, "w").close()
            # Each turn ends at least one test, or is the last.
            while self.turn(path, unit, environment, log, wanted):
                pass
            return dict(self.outcomes(path))

    def turn(self, path, unit, environment, log, wanted):
        """True: a test took the process with it, and is written down; there may be more behind it."""
        with tempfile.TemporaryDirectory(prefix="mqttshim-foreign.") as folder:
            process = subprocess.Popen(
                [self.python, os.path.join(HERE, "cpython.py"), path, unit, *wanted],
                cwd=folder, env=environment | {"TMPDIR": folder}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True)
            size, since, word = 0, time.monotonic(), "crashed"
            while process.poll() is None:
                time.sleep(0.1)
                if os.path.getsize(path) != size:
                    size, since = os.path.getsize(path), time.monotonic()
                elif time.monotonic() - since > SILENCE_SECONDS:
                    word = "hung"
                    break
            end(process)
        with open(path) as lines:
            last = lines.readlines()[-1:] or ["end nothing nothing"]
        if last[0].startswith("start "):
            with open(path, "a") as lines:
                print("end", word, last[0].split()[1], file=lines)
            return True
        if process.returncode != 0:
            with open(path, "a") as lines:
                print("end", word, f"test.{unit}", file=lines)
        return False

    @staticmethod
    def outcomes(path):
        with open(path) as lines:
            for line in lines:
                if line.startswith("end "):
                    _, outcome, test = line.rstrip("\n").split(" ", 2)
                    yield test.replace(" ", ""), outcome


class Tokio:
    """Its integration tests, one process a test."""

    name = "tokio"
    beside_each_other = 4

    def __init__(self, cargo_output):
        self.programs = {}
        with open(cargo_output) as lines:
            for line in lines:
                message = json.loads(line) if line.startswith("{") else {}
                if message.get("executable") and message["target"]["kind"] == ["test"]:
                    self.programs[message["target"]["name"]] = message["executable"]
        self.units = sorted(self.programs)

    def run(self, unit, environment, log, only=()):
        program = self.programs[unit]
        listed = subprocess.run([program, "--list", "--format", "terse"], check=True, capture_output=True, text=True)
        tests = [line[:-6] for line in listed.stdout.splitlines() if line.endswith(": test")]
        outcomes = {}
        for test in tests:
            name = f"{unit}::{test}"
            if only and name not in only:
                continue
            code = run([program, "--exact", test, "--test-threads", "1"], environment, log, TOKIO_SECONDS)
            outcomes[name] = {0: "passed", 101: "failed", None: "hung"}.get(code, "crashed")
        return outcomes


class StressNg:
    """Each stressor does a fixed number of operations; `--verify` has it check what it gets."""

    name = "stress-ng"
    # They use the same ports.
    beside_each_other = 1
    STRESSORS = {
        "sock": "--sock 2 --sock-ops 200",
        "sock-ipv6": "--sock 2 --sock-domain ipv6 --sock-ops 200",
        "sock-nodelay": "--sock 2 --sock-nodelay --sock-ops 200",
        "sock-send": "--sock 2 --sock-opts send --sock-ops 200",
        "sock-sendmsg": "--sock 2 --sock-opts sendmsg --sock-ops 200",
        "sock-sendmmsg": "--sock 1 --sock-opts sendmmsg --sock-ops 200",
        "sockmany": "--sockmany 1 --sockmany-ops 2000",
        "epoll": "--epoll 2 --epoll-domain ipv4 --epoll-ops 500",
        "epoll-ipv6": "--epoll 2 --epoll-domain ipv6 --epoll-ops 500",
        "epoll-unix": "--epoll 2 --epoll-ops 500",
        "poll": "--poll 2 --poll-ops 2000",
        "sockfd": "--sockfd 2 --sockfd-ops 1000",
        "sockpair": "--sockpair 2 --sockpair-ops 1000",
        "sockabuse": "--sockabuse 2 --sockabuse-ops 200",
        "sendfile": "--sendfile 2 --sendfile-ops 1000",
        "udp": "--udp 2 --udp-ops 2000",
    }
    units = list(STRESSORS)

    def __init__(self, program):
        self.program = program

    def run(self, unit, environment, log, only=()):
        if only and unit not in only:
            return {}
        command = [self.program, *self.STRESSORS[unit].split(), "--verify", "--timeout", f"{STRESSOR_SECONDS}s"]
        code = run(command, environment, log, STRESSOR_SECONDS + 30)
        return {unit: {0: "passed", None: "hung"}.get(code, f"failed-{code}")}


if __name__ == "__main__":
    sys.exit("not a program; see scripts/foreign.sh")
