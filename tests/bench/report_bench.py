#!/usr/bin/env python3
"""How long `cachealloc` reads a large recording, and how much memory that takes.
Usage: report_bench.py BUILD [EVENTS]   (10,000,000 events: a file of 650 MB in $TMPDIR)

The recording is written by tests/tools/make_recording: 8 threads, 512 stacks of 30 frames, up to 5,000
live blocks. The file is in the page cache, as right after a run."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def measured(command):
    """Seconds and MiB of resident memory at most."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(map(str, command))} failed")
    return time.monotonic() - begin, usage.ru_maxrss / 1024


def main():
    build = Path(sys.argv[1])
    events = sys.argv[2] if len(sys.argv) > 2 else "10000000"
    tool = build / "bin" / "cachealloc"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.trace"
        subprocess.run([build / "tests" / "tools" / "make_recording", "churn", events, path], check=True)
        print(f"{int(events):,} events, {path.stat().st_size >> 20} MiB")
        commands = {command: [tool, command, path] for command in ("report", "peak", "leaks", "check")}
        commands["diff"] = [tool, "diff", path, path]
        for kind in ("memory_viz", "collapsed", "speedscope", "perfetto", "csv"):
            commands[f"export {kind}"] = [tool, "export", path, "--format", kind, "-o",
                                          Path(folder) / kind]
        for name, command in commands.items():
            seconds, memory = measured(command)
            print(f"{name:20} {seconds:6.2f} s {memory:7.0f} MiB")


if __name__ == "__main__":
    main()
