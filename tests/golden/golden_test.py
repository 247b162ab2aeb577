#!/usr/bin/env python3
"""Recordings of earlier versions still say what they said.

usage: golden_test.py --tool FILE [--update]

v<version>/<name>.trace.gz are recordings as that version wrote them, and are never written again;
<name>.json beside them is what the tool makes of each: report, check, leaks and exports as JSON.
--update writes those files from what the tool says now: look at the difference before you keep it.
Exit status: 0 all as expected, 1 not.
"""

import argparse
import difflib
import gzip
import io
import json
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMMANDS = {
    "report": ["report", "--json"],
    "check": ["check", "--json"],
    "leaks": ["leaks", "--json"],
    **{form: ["export", "--format", form, "-o", "-"]
       for form in ("collapsed", "speedscope", "perfetto", "csv", "memory_viz")},
}
EXPORTED = ("plain", "every_kind", "changed_modules")  # of these all formats


class Loader(pickle.Unpickler):
    """Data alone: a file of ours names no class."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name} in a memory_viz file")


def in_json(name, output):
    if name in ("report", "check", "leaks", "speedscope", "perfetto"):
        return json.loads(output)
    if name == "memory_viz":
        return Loader(io.BytesIO(output)).load()
    return output.decode().splitlines()


def what_the_tool_says(tool, trace):
    """{command: its output, or its status and error line}, with the file's name alone in it."""
    said = {}
    for name, arguments in COMMANDS.items():
        if arguments[0] == "export" and trace.stem not in EXPORTED:
            continue
        done = subprocess.run([tool, arguments[0], trace.name, *arguments[1:]], cwd=trace.parent, env={**os.environ, "TZ": "UTC"},
                              capture_output=True, timeout=60, check=False)
        said[name] = in_json(name, done.stdout) if done.returncode == 0 else {
            "status": done.returncode, "error": done.stderr.decode().splitlines()}
    return said


def compare(tool, packed, update):
    """None, or how the tool's answer differs from the expected one."""
    name = packed.name.removesuffix(".trace.gz")
    expected_file = packed.with_name(name + ".json")
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        trace = Path(folder) / f"{name}.trace"
        trace.write_bytes(gzip.decompress(packed.read_bytes()))
        said = json.dumps(what_the_tool_says(tool, trace), indent=1, sort_keys=True) + "\n"
    if update:
        expected_file.write_text(said)
        return None
    expected = expected_file.read_text() if expected_file.is_file() else ""
    if said == expected:
        return None
    lines = difflib.unified_diff(expected.splitlines(), said.splitlines(), "expected", "now",
                                 lineterm="", n=2)
    return "\n".join(list(lines)[:40])


def main():
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tool", required=True, type=Path)
    options.add_argument("--update", action="store_true")
    args = options.parse_args()
    tool, different = args.tool.resolve(), 0
    traces = sorted(HERE.glob("v*/*.trace.gz"))
    for packed in traces:
        found = compare(tool, packed, args.update)
        if found:
            different += 1
            print(f"{packed.parent.name}/{packed.name}:\n{found}")
    print(f"{len(traces)} recordings, {different} different")
    return 1 if different or not traces else 0


if __name__ == "__main__":
    sys.exit(main())
