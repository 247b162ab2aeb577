#!/usr/bin/env python3
"""Compares what a shared library exports with the checked list.

usage: check_exports.py LIBRARY EXPORTS_TXT ENTRY_POINTS_DEF

Also: every intercepted row is on the list, and the library needs nothing that a machine may lack.
"""
import re
import subprocess
import sys

# libgcc_s and the C library are part of every system; anything else that is missing would keep every
# process under the preload from starting. A sanitizer's runtime is preloaded by whoever builds with it.
ALLOWED = {"libgcc_s.so.1", "libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "libpthread.so.0", "libdl.so.2"}
SANITIZERS = re.compile(r"lib[atu]b?san\.so\.\d+")
# RHEL 9's C library. One symbol that a C library lacks keeps every process from starting too.
NEWEST_GLIBC = (2, 34)


def lines(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def main():
    library, listed_path, table = sys.argv[1:]
    listed = set(open(listed_path).read().split())
    exported, kinds = set(), {}
    for line in lines("nm", "-D", "--defined-only", library):
        kind, name = line.split()[-2:]
        exported.add(name)
        kinds[name] = kind
    wrong = []
    wrong += [f"exported but not listed: {name}" for name in sorted(exported - listed)]
    wrong += [f"listed but not exported: {name}" for name in sorted(listed - exported)]
    wrong += [f"not a function: {name} ({kinds[name]})" for name in sorted(exported) if kinds[name] != "T"]
    hooked = set(re.findall(r"^(?:HOOK|SUBMIT)\((\w+)", open(table).read(), re.M))
    wrong += [f"intercepted but not listed: {name}" for name in sorted(hooked - listed)]
    dynamic = "\n".join(lines("readelf", "-d", "-W", library))
    for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
        if needed not in ALLOWED and not SANITIZERS.fullmatch(needed):
            wrong.append(f"needs {needed}")
    for path in re.findall(r"\(R(?:UN)?PATH\).*\[(.*)\]", dynamic):
        if path != "$ORIGIN":
            wrong.append(f"run path is {path!r}")
    if not SANITIZERS.search(dynamic):  # their builds are for this machine alone
        for line in lines("objdump", "-T", library):
            version = re.search(r"\(?GLIBC_(\d+)\.(\d+)\S*\s+(\S+)$", line)
            if version and (int(version[1]), int(version[2])) > NEWEST_GLIBC:
                wrong.append(f"needs {version[3]} of glibc {version[1]}.{version[2]}")
    print("\n".join(wrong) or f"{len(exported)} exports, all listed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
