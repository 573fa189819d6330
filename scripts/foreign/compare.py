"""Runs foreign test suites without and with the library and compares the outcome of every test.

    compare.py RELEASE OUT [--cpython PYTHON] [--tokio CARGO-OUTPUT] [--stress-ng PROGRAM]

RELEASE has the library and dpu-server; OUT gets logs and outcomes. There are three runs: `native`; `listen`, in which every TCP
listener and what it accepts is on the card; `connect`, in which outgoing connections are too. Tests whose outcomes differ run
again, alone, both ways: one that fails natively then too is flaky, one that fails with the library only is a difference.
Differences must be listed in `exceptions.txt`, with their reason; at most one test in a hundred may be.
"""

import argparse
import collections
import concurrent.futures
import fnmatch
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request

import suites

HERE = os.path.dirname(os.path.abspath(__file__))
RUNS = ("native", "listen", "connect")
RULES = {"listen": "offload listen *:*\n", "connect": "offload listen *:*\noffload connect *:*\n"}
METRICS = "127.0.0.1:9909"
AGAIN = 3
EXCEPTIONS_PERCENT_MAX = 1
GOOD = ("passed", "skipped", "expected-failure")


class Card:
    """A dpu-server for one run, and the environment of a program on it. Natively there is none of both."""

    def __init__(self, run, release, out):
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("MQTTSHIM_")}
        self.server = None
        if run == "native":
            return
        folder = os.path.join(out, run)
        os.makedirs(folder, exist_ok=True)
        session, rules = os.path.join(folder, "session.sock"), os.path.join(folder, "rules")
        with open(rules, "w") as file:
            file.write(RULES[run])
        self.log = open(os.path.join(folder, "dpu-server.log"), "a")
        self.server = subprocess.Popen(
            [os.path.join(release, "dpu-server"), "run", "--session", session, "--metrics", METRICS], stderr=self.log)
        while not os.path.exists(session):
            if self.server.poll() is not None:
                sys.exit(f"foreign: dpu-server did not start; see {self.log.name}")
            time.sleep(0.05)
        self.environment |= {
            "LD_PRELOAD": os.path.join(release, "libmqttshim.so"), "MQTTSHIM_SESSION": session, "MQTTSHIM_RULES": rules,
            "MQTTSHIM_FALLBACK": "fail"}

    def connections(self):
        """How many connections there ever were on the card."""
        if self.server is None:
            return 0
        with urllib.request.urlopen(f"http://{METRICS}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        return int(float(re.search(r"^mqttshim_connections_total (\S+)$", text, re.MULTILINE)[1]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.server is None:
            return
        code = self.server.poll()
        if code is not None:
            sys.exit(f"foreign: dpu-server ended by itself with {code}; see {self.log.name}")
        self.server.terminate()
        self.server.wait()


def play(suite, run, arguments):
    """All tests of a suite: outcomes, connections on the card, seconds."""
    started, outcomes = time.monotonic(), {}
    with Card(run, arguments.release, arguments.out) as card, \
            open(os.path.join(arguments.out, f"{suite.name}-{run}.log"), "w") as log:
        with concurrent.futures.ThreadPoolExecutor(suite.beside_each_other) as pool:
            for part in pool.map(lambda unit: suite.run(unit, card.environment, log), suite.units):
                outcomes |= part
        connections = card.connections()
    with open(os.path.join(arguments.out, f"{suite.name}-{run}.json"), "w") as file:
        json.dump(outcomes, file, indent=1, sort_keys=True)
    seconds = time.monotonic() - started
    print(f"foreign: {suite.name}, {run}: {len(outcomes)} tests, {passes(outcomes)} passed, {connections} connections "
          f"on the card, {seconds:.0f} s", flush=True)
    return outcomes, connections


def passes(outcomes):
    return sum(outcome == "passed" for outcome in outcomes.values())


def again(suite, run, test, arguments):
    """The outcomes of one test that runs alone, some times."""
    unit = next(unit for unit in suite.units if belongs(unit, test))
    with Card(run, arguments.release, arguments.out) as card, \
            open(os.path.join(arguments.out, f"{suite.name}-{run}-again.log"), "a") as log:
        print(f"==== {test}", file=log, flush=True)
        return [suite.run(unit, card.environment, log, {test}).get(test) for _ in range(AGAIN)]


def belongs(unit, test):
    return test == unit or re.match(rf"(test\.)?{re.escape(unit)}(\.|::)", test) is not None


def judge(suite, run, test, arguments):
    """Why a test had two outcomes: `flaky` natively, `not repeated` when alone, or `differs`."""
    if not any(belongs(unit, test) for unit in suite.units):
        return "differs"
    native = again(suite, "native", test, arguments)
    if any(outcome not in GOOD for outcome in native):
        return "flaky"
    return "not repeated" if again(suite, run, test, arguments) == native else "differs"


def exceptions(suite):
    """The patterns of the suite's tests that may differ. A line without a reason is an error."""
    with open(os.path.join(HERE, "exceptions.txt")) as lines:
        entries = [line.split(None, 2) for line in lines if line.strip() and not line.startswith("#")]
    return [pattern for its_suite, pattern, _ in entries if its_suite == suite.name]


def is_listed(patterns, test):
    return any(fnmatch.fnmatchcase(test, pattern) for pattern in patterns)


def compare(suite, arguments):
    """A row for each run with the library, what was found in it, and how many tests are listed as exceptions."""
    native, _ = play(suite, "native", arguments)
    rows, verdicts, patterns = [], {}, exceptions(suite)
    for run in RUNS[1:]:
        outcomes, connections = play(suite, run, arguments)
        differing = [test for test in sorted(native | outcomes) if native.get(test) != outcomes.get(test)]
        counts = collections.Counter()
        for test in differing:
            verdict = "listed" if is_listed(patterns, test) else judge(suite, run, test, arguments)
            counts[verdict] += 1
            verdicts[run, test] = f"{native.get(test)} natively, {outcomes.get(test)} with us: {verdict}"
        rows.append([f"{suite.name}, {run}", len(native), passes(native), passes(outcomes), counts["differs"],
                     counts["listed"], counts["flaky"], counts["not repeated"], connections])
    return rows, verdicts, sum(is_listed(patterns, test) for test in native)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("release", type=os.path.abspath)
    parser.add_argument("out", type=os.path.abspath)
    for suite in ("--cpython", "--tokio", "--stress-ng"):
        parser.add_argument(suite)
    arguments = parser.parse_args()
    # Ended from outside, this still ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.makedirs(arguments.out, exist_ok=True)
    chosen = [kind(argument) for kind, argument in (
        (suites.CPython, arguments.cpython), (suites.Tokio, arguments.tokio), (suites.StressNg, arguments.stress_ng))
        if argument]
    listed, rows, is_bad = 0, [], False
    for suite in chosen:
        its_rows, verdicts, its_listed = compare(suite, arguments)
        rows, listed = rows + its_rows, listed + its_listed
        for (run, test), verdict in verdicts.items():
            print(f"foreign: {suite.name}, {run}: {test}: {verdict}", flush=True)
    print()
    head = ["suite, run", "tests", "passed without", "passed with", "differences", "listed", "flaky without us",
            "not repeated", "connections on the card"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")
        if row[4]:
            print(f"foreign: {row[0]}: {row[4]} unlisted differences", file=sys.stderr)
            is_bad = True
        if row[8] == 0:
            print(f"foreign: {row[0]}: nothing was on the card, so nothing was compared", file=sys.stderr)
            is_bad = True
    tests = sum(row[1] for row in rows) // 2
    share = 100 * listed / max(tests, 1)
    print(f"{listed} of {tests} tests, {share:.2f} %, are listed in scripts/foreign/exceptions.txt")
    # Of all suites together; one alone may have more.
    if share > EXCEPTIONS_PERCENT_MAX and len(chosen) == 3:
        print(f"foreign: more than {EXCEPTIONS_PERCENT_MAX} % are listed", file=sys.stderr)
        is_bad = True
    sys.exit(is_bad or not chosen)


if __name__ == "__main__":
    main()
