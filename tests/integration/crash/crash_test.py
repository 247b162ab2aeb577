#!/usr/bin/env python3
"""Processes that end badly, hide or multiply while they are recorded: the host must not notice, and
the file must be right.

usage: crash_test.py --preload LIST --programs DIR [--tool FILE] [--null-driver FILE]
                     [--leak-app FILE] CASE...
       crash_test.py --list

Each case runs its program in a fresh folder. What the file holds is read from its bytes (raw_trace.py)
and, with --tool, by `cachealloc`. Exit status: 0 passed, 1 failed, 77 skipped.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
from ending_cases import ENDINGS  # noqa: E402
from process_cases import PROCESSES  # noqa: E402
from report_cases import REPORTS  # noqa: E402
from room_cases import ROOM  # noqa: E402

SKIPPED = 77
CASES = {**ENDINGS, **PROCESSES, **ROOM, **REPORTS}


class Failed(Exception):
    """A promise was not kept; the message says which."""


class Skipped(Exception):
    """The case needs something that this machine lacks."""


class Result:
    def __init__(self, done):
        self.pid, self.status = done.pid, done.returncode
        self.out, self.err = (text.decode(errors="replace") for text in done.outputs)
        self.said = [line for line in self.err.splitlines() if line.startswith("cachealloc: ")]


class Case:
    """One case at work: a folder of its own, processes under the preload, what they left behind."""

    def __init__(self, args, folder):
        self.args, self.folder = args, Path(folder)
        self.traces = self.folder / "traces"
        self.traces.mkdir()
        (self.folder / "temporary").mkdir()

    def program(self, name):
        return str(self.args.programs / name)

    def environment(self, changes):
        env = {key: value for key, value in os.environ.items()
               if not key.startswith("CACHEALLOC") and key != "LD_PRELOAD"}
        env.update(LD_PRELOAD=self.args.preload, CACHEALLOC_TRACE_DIR=str(self.traces),
                   TMPDIR=str(self.folder / "temporary"), HOME=str(self.folder))
        for key, value in changes.items():
            if value is None:
                env.pop(key, None)
            else:
                env[key] = str(value)
        return env

    def start(self, command, before=None, **changes):
        return subprocess.Popen([str(part) for part in command], env=self.environment(changes),
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, preexec_fn=before)

    def run(self, command, before=None, **changes):
        """Runs to the end; `before` is called in the child before the program starts."""
        child = self.start(command, before, **changes)
        child.outputs = child.communicate(timeout=90)
        return Result(child)

    def kill_when_ready(self, command, **changes):
        """SIGKILL as soon as the program has said that it is ready."""
        child = self.start(command, **changes)
        first = child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        rest, error = child.communicate(timeout=30)
        child.outputs = (first + rest, error)
        self.expect(first == b"ready\n", f"the program got ready: {first!r} {error[-300:]!r}")
        return Result(child)

    def files(self, folder=None):
        """All regular files below the case's folder (or another), relative to it, sorted."""
        top = Path(folder or self.folder)
        return sorted(str(path.relative_to(top)) for path in top.rglob("*") if path.is_file())

    def expect(self, condition, what):
        if not condition:
            raise Failed(what)

    def expect_run(self, result, status, out):
        """The host's own behaviour: its status, its output, and nothing of ours on stderr."""
        self.expect(result.status == status,
                    f"status {status}, not {result.status}: {result.out!r} {result.err[-500:]!r}")
        self.expect(result.out == out, f"output {out!r}, not {result.out!r}")
        self.expect(not result.said, f"nothing said, not {result.said}")

    def need_null_driver(self):
        if not self.args.null_driver:
            self.skip("no null driver")

    def skip(self, why):
        raise Skipped(why)

    def tool(self, *arguments, status=0):
        """Standard output of the tool; None where these tests run without it."""
        if self.args.tool is None:
            return None
        env = dict(os.environ)
        env.pop("LD_PRELOAD", None)
        done = subprocess.run([self.args.tool, *map(str, arguments)], env=env, capture_output=True,
                              text=True, timeout=60, check=False)
        self.expect(done.returncode == status,
                    f"cachealloc {arguments[0]}: status {status}, not {done.returncode}: "
                    f"{done.stdout[-300:]!r} {done.stderr[-300:]!r}")
        return done.stdout

    def tool_json(self, *arguments):
        text = self.tool(*arguments, "--json")
        return None if text is None else json.loads(text)


def main():
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--list", action="store_true")
    options.add_argument("--preload", help="what LD_PRELOAD becomes")
    options.add_argument("--programs", type=Path)
    options.add_argument("--tool")
    options.add_argument("--null-driver")
    options.add_argument("--leak-app")
    options.add_argument("cases", nargs="*")
    args = options.parse_args()
    if args.list:
        print("\n".join(CASES))
        return 0
    statuses = set()
    for name in args.cases:
        with tempfile.TemporaryDirectory(prefix="crash-", dir=Path.cwd()) as folder:
            try:
                note = CASES[name](Case(args, folder))
                print(f"PASS {name}" + (f": {note}" if note else ""))
                statuses.add(0)
            except Skipped as why:
                print(f"SKIP {name}: {why}")
                statuses.add(SKIPPED)
            except (Failed, AssertionError, subprocess.TimeoutExpired) as error:
                print(f"FAIL {name}: {error}")
                statuses.add(1)
    return 1 if 1 in statuses else SKIPPED if statuses == {SKIPPED} else 0


if __name__ == "__main__":
    sys.exit(main())
