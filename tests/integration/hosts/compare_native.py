#!/usr/bin/env python3
"""Runs a command natively and under the preload: nobody may be able to tell.

usage: compare_native.py PRELOAD COMMAND...

Output, error output and exit status must be equal, and the process and its children may leave no file
behind (their home and temporary directories are fresh and empty). Exit status: 0 equal, 1 not.
"""
import os
import subprocess
import sys
import tempfile


def run(preload, command):
    with tempfile.TemporaryDirectory() as home:
        environment = dict(os.environ, HOME=home, TMPDIR=home, XDG_RUNTIME_DIR=home,
                           CACHEALLOC_TRACE_DIR=home, PYTHONDONTWRITEBYTECODE="1")
        environment.pop("LD_PRELOAD", None)
        if preload:
            environment["LD_PRELOAD"] = preload
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, check=False)
        files = sorted(os.path.relpath(os.path.join(folder, name), home)
                       for folder, _, names in os.walk(home) for name in names)
        def plain(text):
            return text.decode(errors="replace").replace(home, "HOME")
        return {"status": done.returncode, "output": plain(done.stdout),
                "error output": plain(done.stderr), "files": files}


def main():
    preload, command = sys.argv[1], sys.argv[2:]
    native, preloaded = run("", command), run(preload, command)
    different = [key for key in native if native[key] != preloaded[key]]
    for key in different:
        print(f"{key}: natively {native[key]!r}, under the preload {preloaded[key]!r}")
    if not different:
        print(f"status {native['status']}, {len(native['output'])} bytes of output, "
              f"files {native['files']}: equal")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
