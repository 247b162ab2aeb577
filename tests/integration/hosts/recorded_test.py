#!/usr/bin/env python3
"""Runs a host that throws, is cancelled and exits threads while it is recorded, by each unwinder.

usage: recorded_test.py TESTING_SHIM SIMULATED_CUDA_FOLDER COMMAND...

The host must succeed; its libstdc++ must have bound to libgcc_s, not to libunwind, which exports the
same names; every allocation must have a stack; no walk may differ from libgcc's (the testing shim
compares). Prints how the stacks were captured.
"""
import os
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

COUNTERS = 96  # trace::Header::counters
NAMES = ("claims", "overwritten", "lost", "nested", "dropped", "walked", "unwound", "failed", "differed")
UNWIND = re.compile(r"binding file (\S+) \[\d+\] to (\S+) \[\d+\]: .*`(_Unwind_\w+|backtrace)'")
MAY_BIND = re.compile(r"/(libgcc_s\.so\.1|libunwind[\w-]*\.so\.\d+)$")


def wrong(condition, text, problems):
    if condition:
        problems.append(text)


def run(shim, cuda, command, unwinder, folder):
    trace = folder / f"{unwinder}.trace"
    environment = dict(os.environ, LD_PRELOAD=shim, LD_LIBRARY_PATH=cuda, LD_DEBUG="bindings",
                       LD_DEBUG_OUTPUT=str(folder / f"{unwinder}.bindings"), LD_BIND_NOW="1",
                       CACHEALLOC_TRACE=str(trace), CACHEALLOC_TEST_CHECK_STACKS="1",
                       CACHEALLOC_CONF=f"unwinder:{unwinder},stacks:all")
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    problems = []
    wrong(done.returncode != 0 or "host ok" not in done.stdout,
          f"status {done.returncode}: {done.stdout}{done.stderr}", problems)
    bindings = "".join(path.read_text() for path in folder.glob(f"{unwinder}.bindings.*"))
    raised = 0
    for who, to, name in UNWIND.findall(bindings):
        raised += name == "_Unwind_RaiseException"
        wrong("libunwind" in to and "libunwind" not in who, f"{who} got {name} of {to}", problems)
        wrong(name.startswith("_Unwind_") and not MAY_BIND.search(to), f"{name} of {to}", problems)
    wrong(raised == 0, "nobody throws: this shows nothing", problems)
    count = {}
    if not problems:
        numbers = struct.unpack_from(f"<{len(NAMES)}Q", trace.read_bytes(), COUNTERS)
        count = dict(zip(NAMES, numbers))
        wrong(count["failed"] != 0, "a stack was not found", problems)
        wrong(count["differed"] != 0, "a walk differed from libgcc's", problems)
        wanted = "walked" if unwinder == "auto" else "unwound"
        wrong(count[wanted] < 60, f"not captured as asked: {count}", problems)
    print(unwinder, {name: count.get(name) for name in ("walked", "unwound", "failed", "differed")})
    return [f"unwinder:{unwinder}: {problem}" for problem in problems]


def main():
    shim, cuda, *command = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        problems = [problem for unwinder in ("auto", "libunwind", "gcc")
                    for problem in run(shim, cuda, command, unwinder, Path(folder))]
    print("\n".join(problems) or "as it should be")
    return 1 if problems else 0


sys.exit(main())
