#!/usr/bin/env python3
"""One case of what a process says about CACHEALLOC_CONF: options_test.py CASE SHIM PROGRAM [RUNTIME..]"""

import os
import subprocess
import sys

CASE, SHIM, PROGRAM, *RUNTIMES = sys.argv[1:]


def run(conf, command=None):
    """Runs the CUDA program under the shim; returns its status and what the shim said."""
    env = dict(os.environ, CACHEALLOC_CONF=conf, LD_PRELOAD=":".join(RUNTIMES + [SHIM]))
    done = subprocess.run(command or [PROGRAM, "--iterations", "2"], env=env, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=100, check=False)
    said = [line for line in done.stderr.splitlines() if line.startswith("cachealloc")]
    return done.returncode, said, done.stdout


def expect(condition, what):
    if not condition:
        sys.exit(f"{CASE}: {what}")


def one_line_with(conf, *words):
    status, said, out = run(conf)
    expect(status == 0 and "right" in out, f"the program did not run: status {status}")
    expect(len(said) == 1, f"one line wanted: {said}")
    for word in words:
        expect(word in said[0], f"'{word}' not in: {said[0]}")


def unknown_key():
    one_line_with("fre:async", "fre", "async", "free")


def bad_value():
    one_line_with("free:asink", "free", "asink", "auto, sync, async", "default")


def out_of_range():
    one_line_with("slack_percent:101", "slack_percent", "101", "0 to 100", "12")


def strict():
    status, said, out = run("strict:True,fre:async")
    expect(status == 2, f"status {status}")
    expect("right" not in out, "the program went on")
    expect(any("fre" in line for line in said), f"{said}")


def strict_without_mistakes():
    status, said, out = run("strict:True,free:async")
    expect(status == 0 and "right" in out and not said, f"{status} {said}")


def quiet_when_right():
    status, said, _ = run(" free : async , slack_mb:1,roundup_power2_divisions:[256:1,>:4]")
    expect(status == 0 and not said, f"{status} {said}")


def off():
    status, said, out = run("off")
    expect(status == 0 and "right" in out and not said, f"{status} {said}")


def many_mistakes():
    status, said, out = run(",".join(f"bad{i}:1" for i in range(100)))
    expect(status == 0 and "right" in out, f"status {status}")
    expect(10 <= len(said) <= 40, f"{len(said)} lines")
    expect("more like these" in said[-1], f"what was left out is not counted: {said[-1]}")


def without_cuda():
    status, said, _ = run("strict:True,fre:async", ["/bin/true"])
    expect(status == 0 and not said, f"a process that never touches CUDA: {status} {said}")


globals()[CASE]()
