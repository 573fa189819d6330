"""Runs one module of CPython's own tests and writes one line for each test, as it ends, to a file.

    cpython.py RESULTS MODULE [TEST...]

A line is `start TEST`, or `end OUTCOME TEST`. Tests that already have a line in RESULTS are left out, so that a run which hung
in one test, and was killed, can be taken up behind it. With TESTs, only those run.
"""

import sys
import unittest
from test import support


class Lines(unittest.TestResult):
    """Writes each outcome down at once: whoever watches the file sees which test hangs."""

    def __init__(self, path):
        super().__init__()
        self.file = open(path, "a", buffering=1)
        self.outcome = None

    def startTest(self, test):
        super().startTest(test)
        self.outcome = "passed"
        print("start", test.id(), file=self.file)

    def stopTest(self, test):
        super().stopTest(test)
        print("end", self.outcome, test.id(), file=self.file)

    def note(self, test, outcome, error=None):
        if error is not None:
            print(f"{test.id()}: {self._exc_info_to_string(error, test)}", file=sys.stderr, flush=True)
        # A fixture of a class or module is no test: it has no start and no stop.
        if isinstance(test, unittest.suite._ErrorHolder):
            print("end", outcome, test.id(), file=self.file)
        elif self.outcome != "failed":
            self.outcome = outcome

    def addError(self, test, error):
        self.note(test, "failed", error)

    def addFailure(self, test, error):
        self.note(test, "failed", error)

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.note(test, "failed", error)

    def addSkip(self, test, reason):
        self.note(test, "skipped")

    def addExpectedFailure(self, test, error):
        self.note(test, "expected-failure")

    def addUnexpectedSuccess(self, test):
        self.note(test, "unexpected-success")


def left(suite, keep):
    """The suite without the tests `keep` refuses."""
    kept = unittest.TestSuite()
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            kept.addTest(left(test, keep))
        elif keep(test.id()):
            kept.addTest(test)
    return kept


def main():
    results, module, wanted = sys.argv[1], sys.argv[2], set(sys.argv[3:])
    try:
        with open(results) as lines:
            done = {line.split()[-1] for line in lines}
    except FileNotFoundError:
        done = set()
    support.use_resources = ["network"]
    # AF_VSOCK waits for ever on machines whose hypervisor has no socket for it, and is none of ours.
    keep = lambda test: "VSOCK" not in test and test not in done and (not wanted or test in wanted)
    suite = unittest.defaultTestLoader.loadTestsFromName(f"test.{module}")
    left(suite, keep).run(Lines(results))


if __name__ == "__main__":
    main()
