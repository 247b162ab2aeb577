"""One allocate + free pair in a loop: the shim at both levels and in both modes of free, beside
the native calls, cudaMallocAsync and CUB."""

from bench_tools import json_lines, level_of, size_name, spread
from harness import MODES, median, table

# libcudart of the program, the door its calls come through, the program
KINDS = (("static", "cuGetProcAddress", "bench/pair_bench_static"),
         ("shared", "exported cudaMalloc", "bench/pair_bench"))

# name, mode, arguments: a process with no stream stays at level `ordered`.
OURS = (("ordered, free:auto", "default", []),
        ("ordered, free:async", "async", []),
        ("fenced, free:auto", "default", ["--stream", "--async"]),
        ("fenced, free:async", "async", ["--stream"]))


def bench_pair(harness, rounds):
    samples = {}  # (kind, name) -> {(bytes, threads): [us]}
    notes = {}

    def note(kind, name, lines):
        for line in lines:
            what = name if line["what"] == "cudaMalloc" else f"{line['what']}, {name}"
            cells = samples.setdefault((kind, what), {})
            cells.setdefault((line["bytes"], line["threads"]), []).append(line["ns"] / 1e3)

    for _ in range(rounds):
        for kind, _, binary in KINDS:
            program = harness.binary(binary)
            note(kind, "native", json_lines(harness.run([program, "--peers"])))
            for name, mode, arguments in OURS:
                run = harness.run([program, *arguments], mode)
                note(kind, name, json_lines(run))
                notes[kind, name] = level_of(run)
    columns = ["native", "cudaMallocAsync, native", "cub::Caching, native",
               "cudaMallocAsync, fenced, free:auto", *(name for name, _, _ in OURS)]
    rows = []
    for kind, door, _ in KINDS:
        for size, threads in samples[kind, "native"]:
            cells = [samples[kind, name][size, threads] for name in columns]
            rows.append([kind, door, size_name(size), threads, f"{median(cells[0]):.1f}",
                         *(spread(values, "{:.2f}" if median(values) < 100 else "{:.0f}")
                           for values in cells[1:])])
    header = ["libcudart", "door", "size", "threads", "native", "cudaMallocAsync", "cub::Caching",
              "cudaMallocAsync + shim", *(name for name, _, _ in OURS)]
    lines = ["allocate + free pair, us per pair and thread, idle device; median (lowest..highest) "
             f"of {rounds} interleaved rounds",
             f"  free:auto is the default (CACHEALLOC_CONF={MODES['default']})"]
    lines += [f"  {kind} libcudart, {name}: {text}" for (kind, name), text in notes.items()]
    lines.append(table(rows, header))
    for kind, name, aim in (("static", OURS[0][0], 0.12), ("shared", OURS[0][0], 0.22),
                            ("static", OURS[2][0], 0.9)):
        figure = median(samples[kind, name][4096, 1])
        lines.append(f"4 KiB, {kind} libcudart, {name}: {figure:.3f} us (aim <= {aim})")
    return lines
