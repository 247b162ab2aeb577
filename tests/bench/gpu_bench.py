#!/usr/bin/env python3
"""Runs the benchmarks that compare the shim with its peers, and prints one table for each.

    gpu_bench.py --build DIR [stub] [launch] [pair] [late] [pipeline] [choice] [core]
                 [record] [read] [--rounds N]

Native and shim processes take turns, at least five rounds each; a figure is the median of its
rounds with (lowest .. highest) beside it, a ratio is the median of the rounds' own ratios.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu"))
from bench_choice import bench_choice  # noqa: E402
from bench_pair import bench_pair  # noqa: E402
from bench_record import bench_read, bench_record  # noqa: E402
from bench_tools import BenchError, json_lines, level_of, spread  # noqa: E402
from harness import SKIPPED, Harness, driver_version, find_gpu, median, table  # noqa: E402


KERNELS = ("short", "long")


def pipeline_rates(run):
    """Items per second by kernel, from the pipeline program's JSON lines on stderr."""
    if not run.ok:
        raise BenchError(f"pipeline [{run.mode}]: {run.why()}")
    lines = [json.loads(line) for line in run.err.splitlines() if line.startswith("{")]
    return {line["kernel"]: line["items_per_s"] for line in lines}


def bench_pipeline(harness, rounds):
    """The 4-stream pipeline: preallocated, cudaMallocAsync, cudaMalloc, cudaMalloc + shim."""
    program = harness.app("pipeline")
    async_native, ours = "cudaMallocAsync", "cudaMalloc + shim free:async"
    auto = "cudaMalloc + shim free:auto"
    ways = [("preallocated", "prealloc", "native"), (async_native, "async", "native"),
            ("cudaMalloc native", "malloc", "native"), (ours, "malloc", "async"),
            (auto, "malloc", "default"), ("cudaMallocAsync + shim", "async", "default"),
            ("cudaMalloc + shim free:sync", "malloc", "sync")]
    slow = ("cudaMalloc native", auto, "cudaMalloc + shim free:sync")  # wait at each free
    rates = {(name, kernel): [] for name, _, _ in ways for kernel in KERNELS}
    outputs = set()
    note = ""
    for index in range(rounds):
        for name, way, mode in ways:
            if name in slow and index > 0:
                continue  # one round shows it
            run = harness.run([program, "--mode", way, "--rounds", 2, "--json"], mode, timeout=60)
            for kernel, rate in pipeline_rates(run).items():
                rates[name, kernel].append(rate)
            outputs.add(run.out)
            if mode == "async":
                note = level_of(run)
    ratios = {key: [a / b for a, b in zip(values, rates[async_native, key[1]])]
              for key, values in rates.items()}
    rows = []
    for name, _, _ in ways:
        row = [name]
        for kernel in KERNELS:
            row += [spread(rates[name, kernel], "{:.0f}"), spread(ratios[name, kernel], "{:.3f}")]
        rows.append(row)
    if len(outputs) != 1:
        raise BenchError("pipeline: the ways computed different results")
    aim = ", ".join(f"{kernel} {median(ratios[ours, kernel]):.3f}" for kernel in KERNELS)
    return [f"4-stream pipeline, items/s; median (lowest..highest) of {rounds} interleaved rounds",
            f"  shim free:async: {note}",
            table(rows, ["way", "short kernel", "of Async", "long kernel", "of Async"]),
            f"shim free:async / cudaMallocAsync: {aim} (aim >= 0.95)"]


# name, way, mode
LATE_WAYS = (("cudaFree + cudaMalloc native", "malloc", "native"),
             ("cudaFreeAsync + cudaMallocAsync native", "async", "native"),
             ("context event: record, query, wait, native", "events", "native"),
             ("cudaFree + cudaMalloc, shim free:auto", "malloc", "default"),
             ("cudaFree + cudaMalloc, shim free:async", "malloc", "async"),
             ("cudaFreeAsync + cudaMallocAsync, shim", "async", "default"))


def bench_late(harness, rounds):
    """Host time of free + allocate behind a 200 ms kernel that still reads the freed block."""
    program = harness.binary("bench/late_launch")
    rows, notes, aims = [], [], []
    for name, way, mode in LATE_WAYS:
        kernels = 2 if (way, mode) == ("malloc", "native") else rounds + 2
        run = harness.run([program, "--way", way, "--rounds", kernels], mode, timeout=60)
        lines = json_lines(run)
        times = [line["us"] for line in lines if line["what"] == "late"]
        wrong = [line["wrong"] for line in lines if line["what"] == "late_end"][0]
        everything = [pair for pairs in times for pair in pairs]
        rows.append([name, *(spread([t[i] for t in times], "{:.1f}") for i in range(3)),
                     f"{median(everything):.2f}", wrong])
        if mode != "native":
            notes.append(f"  {name}: {level_of(run)}")
            aims.append(f"{name} {median(everything):.2f}")
    return ["free + allocate of 128 MiB behind a 200 ms kernel on another stream, host us; median "
            f"(lowest..highest) over {rounds + 2} kernels",
            *notes,
            table(rows, ["way", "1st pair", "2nd pair", "3rd pair", "median of all",
                         "wrong words"]),
            f"median of all pairs: {'; '.join(aims)} (aim <= 2 us and no wrong word)"]


LAUNCH_WAYS = (("legacy stream, level ordered", []), ("1 stream, level fenced", ["--streams", 1]),
               ("4 streams in turn, level fenced", ["--streams", 4]))


def bench_launch(harness, rounds):
    """Host time of real launches; the difference is smaller than the noise, `stub` has it exact."""
    program = harness.binary("bench/launch_bench")
    samples = {}  # (way, what, mode) -> [ns]
    for _ in range(rounds):
        for way, arguments in LAUNCH_WAYS:
            for mode in ("native", "default"):
                for line in json_lines(harness.run([program, *arguments], mode)):
                    samples.setdefault((way, line["what"], mode), []).append(line["ns"])
    rows = []
    for what in dict.fromkeys(key[1] for key in samples):
        for way, _ in LAUNCH_WAYS:
            native, ours = samples[way, what, "native"], samples[way, what, "default"]
            added = [a - b for a, b in zip(ours, native)]
            rows.append([what, way, spread(native, "{:.0f}"), spread(ours, "{:.0f}"),
                         spread(added, "{:+.0f}")])
    return [f"one launch, host ns; median (lowest..highest) of {rounds} interleaved rounds",
            table(rows, ["call", "streams", "native", "shim", "difference"])]


def bench_core(harness, rounds):
    """The pool's own cost, without CUDA (Google Benchmark's medians)."""
    program = harness.binary("bench/core_bench")
    run = harness.run([program, f"--benchmark_repetitions={rounds}", "--benchmark_format=json",
                       "--benchmark_min_time=0.1"], timeout=240)
    if not run.ok:
        raise BenchError(f"core_bench: {run.why()}")
    by_name = {}
    for entry in json.loads(run.out)["benchmarks"]:
        if entry.get("run_type") == "iteration":
            by_name.setdefault(entry["run_name"], []).append(entry)
    rows = []
    for name, entries in by_name.items():
        # Wall time of one thread's pair: the wall clock of the run times its threads.
        threads = entries[0].get("threads", 1)
        values = [entry.get("ns_per_pair", entry["real_time"] * threads) for entry in entries]
        rows.append([name, threads, spread(values, "{:.1f}")])
    lines = [f"core API (DevicePool, null order), ns per pair and thread, {rounds} repetitions",
             table(rows, ["benchmark", "threads", "ns"])]
    if shutil.which("valgrind"):
        counts = harness.run([Path(__file__).parent / "callgrind_pair", harness.build], timeout=120)
        lines += counts.out.splitlines() if counts.ok else [f"callgrind_pair: {counts.why()}"]
    return lines + ["(aims: pair <= 60 ns with 1 thread, <= 250 ns with 8)"]


STUB_WAYS = (("legacy stream, level ordered", ("--streams", 0)),
             ("1 stream, level fenced", ("--streams", 1)),
             ("4 streams in turn, level fenced", ("--streams", 4)),
             ("legacy stream beside 32 idle ones", ("--idle", 32)))


def bench_stub(harness, rounds):
    """What the shim adds to calls of a driver that does nothing, and to a pair when caches are cold.
    """
    program = harness.binary("bench/stub_bench")
    samples = {}  # (streams, what, mode) -> [ns]
    late = {"native": [], "default": []}
    for _ in range(rounds):
        for _, streams in STUB_WAYS:
            for mode in ("native", "default"):
                run = harness.run([program, *streams], mode)
                for line in json_lines(run):
                    samples.setdefault((streams, line["what"], mode), []).append(line["ns"])
        for mode, times in late.items():
            run = harness.run([program, "--late"], mode)
            times += [line["ns"] for line in json_lines(run)]
    rows = []
    for what in dict.fromkeys(key[1] for key in samples):
        row = [what, f"{median(samples[STUB_WAYS[0][1], what, 'native']):.1f}"]
        for _, streams in STUB_WAYS:
            added = [ours - native for ours, native in zip(samples[streams, what, "default"],
                                                           samples[streams, what, "native"])]
            row.append(spread(added, "{:.1f}"))
        rows.append(row)
    lines = ["what the shim adds to a call of a driver that does nothing, ns; median "
             f"(lowest..highest) of {rounds} interleaved rounds",
             table(rows, ["call", "native", *(name for name, _ in STUB_WAYS)]),
             "(aim: <= 5 ns for what submits work)"]
    cold = [f"{median([times[i] for times in late['default']]) / 1e3:.2f}" for i in range(3)]
    lines.append("free + allocate on a busy device with cold caches, the shim's own part: 1st, 2nd, "
                 f"3rd pair {', '.join(cold)} us")
    return lines


BENCHES = {"stub": bench_stub, "launch": bench_launch, "pair": bench_pair, "late": bench_late,
           "pipeline": bench_pipeline, "choice": bench_choice, "core": bench_core,
           "record": bench_record, "read": bench_read}


WITHOUT_GPU = ("stub", "core", "record", "read")


def run_benches(harness, names, rounds, say=print):
    """Runs the named benches; returns {name: lines} of what succeeded and {name: error}."""
    done, failed = {}, {}
    for name in names:
        # Figures of the allocator itself; what recording adds is a benchmark of its own.
        harness.records = name in ("record", "read")
        try:
            done[name] = BENCHES[name](harness, rounds)
            say("\n".join(done[name]) + "\n")
        except (BenchError, OSError, KeyError, IndexError, TypeError, ValueError) as error:
            failed[name] = f"{type(error).__name__}: {error}"
            say(f"bench {name} FAILED: {failed[name]}\n")
    harness.records = True
    return done, failed


def main():
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--build", default="build", type=Path)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("names", nargs="*", metavar="|".join(BENCHES))
    args = options.parse_args()
    names = args.names or list(BENCHES)
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        options.error(f"no such benchmark: {unknown[0]}")
    harness = Harness(args.build)
    gpu = find_gpu()
    if gpu is None:
        for name in [name for name in names if name not in WITHOUT_GPU]:
            print(f"SKIP {name}: no GPU")
        names = [name for name in names if name in WITHOUT_GPU]
        if not names:
            return SKIPPED
    print(f"GPU: {gpu or 'none'}; driver's CUDA {driver_version()}; shim {harness.shim()}")
    return 1 if run_benches(harness, names, args.rounds)[1] else 0


if __name__ == "__main__":
    sys.exit(main())
