#!/usr/bin/env python3
"""Compares shim/entry_points.def with the driver headers of the toolkit found.

usage: check_cuda_headers.py COMPILER INCLUDE_DIR ENTRY_POINTS_DEF

Every CUresult prototype must have a row. A name that only a toolkit newer than 13.0 has is a warning,
since the table is reviewed row by row; the shim leaves such functions alone and counts their look-ups.
Stream positions are compared too. Exit status: 0 fine, 1 something is missing or wrong.
"""
import re
import subprocess
import sys

REVIEWED = 13000
# Headers whose own includes (OpenGL, EGL, VDPAU) may be absent are read as text.
OTHER_HEADERS = ["cudaGL.h", "cudaEGL.h", "cudaVDPAU.h", "cudaProfiler.h"]


def prototypes(text):
    text = re.sub(r"\s+", " ", text)
    return {name: [p.strip() for p in params.split(",")]
            for name, params in re.findall(r"CUresult (?:CUDAAPI )?(cu[A-Z]\w*) ?\(([^()]*)\) ?;", text)}


def main():
    compiler, include, table = sys.argv[1:]
    source = "#include <cuda.h>\nREVIEW_VERSION CUDA_VERSION\n"
    text = subprocess.run([compiler, "-x", "c++", "-E", "-P", "-D__CUDA_API_VERSION_INTERNAL",
                           "-I", include, "-"],
                          input=source, capture_output=True, text=True, check=True).stdout
    version = int(re.search(r"REVIEW_VERSION (\d+)", text)[1])
    header = prototypes(text)
    if len(header) < 500:
        print(f"only {len(header)} prototypes found in {include}/cuda.h: cannot judge")
        return 1

    rows = {}
    for name, kind, stream in re.findall(r"^(?:PASS|CALL|HOOK|SUBMIT)\((\w+), (\w+), (\w+)",
                                         open(table).read(), re.M):
        if name in rows:
            print(f"{name}: two rows")
            return 1
        rows[name] = (kind, stream)

    wrong = 0
    for name, params in sorted(header.items()):
        position = next((str(i) for i, p in enumerate(params) if re.match(r"CUstream\b(?! ?\*)", p)), None)
        if name not in rows:
            print(f"{name}: no row (stream argument: {position})")
            wrong += version <= REVIEWED
        elif position is not None and rows[name][1] != position and version <= REVIEWED:
            print(f"{name}: the stream is argument {position}, the table says {rows[name][1]}")
            wrong += 1
    for other in OTHER_HEADERS:
        try:
            text = open(f"{include}/{other}").read()
        except OSError:
            continue
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
        for name in sorted(prototypes(text)):
            if name not in rows:
                print(f"{name}: no row ({other})")
                wrong += version <= REVIEWED
    print(f"CUDA {version}: {len(header)} prototypes in cuda.h, {len(rows)} rows, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
