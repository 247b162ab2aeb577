"""What recording adds to a pair of calls, beside heaptrack's pair of malloc and free; how long the
tool takes over a long recording. Runs without a GPU (null_driver.cpp)."""

import os
import shutil
import struct
import subprocess
import time
from pathlib import Path

from bench_tools import BenchError, json_lines, spread
from harness import table

OFF, PLAIN, FULL, WALKER_OFF = "record:off", "stacks:off", "as it comes", "unwinder:libunwind"
WAYS = {OFF: "record:off", PLAIN: "stacks:off", FULL: "", WALKER_OFF: "unwinder:libunwind"}
READ_EVENTS, EXPORT_EVENTS = 10_000_000, 1_000_000
FORMATS = ("memory_viz", "collapsed", "speedscope", "perfetto", "csv")


def points(run):
    return {(line["stacks"], line["depth"], line["threads"]): line["ns"]
            for line in json_lines(run)}


def bench_record(harness, rounds):
    """ns a pair: recording off, what a record adds, what its stack adds."""
    program = harness.binary("bench/record_bench")
    samples = {way: [] for way in WAYS}
    trace = harness.scratch("bench.trace")
    for _ in range(rounds):
        for way, options in WAYS.items():
            trace.unlink(missing_ok=True)
            run = harness.run([program], "default", conf=options or "log:normal", timeout=120,
                              extra={"CACHEALLOC_TRACE": str(trace)})
            samples[way].append(points(run))
            if "cachealloc:" in run.err:
                raise BenchError(f"record_bench {way}: {run.err.strip()[-200:]}")
            if way == FULL:
                per_event = bytes_per_event(trace)
    rows = []
    for point in samples[OFF][0]:
        off, plain, full, other = ([one[point] for one in samples[way]] for way in WAYS)
        rows.append([*point, spread(off, "{:.0f}"),
                     spread([b - a for a, b in zip(off, plain)], "{:.0f}"),
                     spread([b - a for a, b in zip(plain, full)], "{:.0f}"),
                     spread([b - a for a, b in zip(off, full)], "{:.0f}"),
                     spread([b - a for a, b in zip(plain, other)], "{:.0f}")])
    aims = []
    for stacks in ("same", "varied", "fresh"):
        point = (stacks, 30, 1)
        added = [full[point] - off[point] for off, full in zip(samples[OFF], samples[FULL])]
        aims.append(f"{stacks} {spread(added, '{:.0f}')}")
    return ["recording a cuMemAlloc + cuMemFree pair, ns of thread time; "
            f"median (lowest..highest) of {rounds} interleaved rounds",
            table(rows, ["stacks", "depth", "threads", "pair, record:off", "+ record", "+ stack",
                         "together", "+ stack, libunwind"]),
            f"depth 30, 1 thread, together: {', '.join(aims)} ns a pair (aim <= 300); {per_event}",
            *heaptrack_lines(harness, program, rounds)]


def bytes_per_event(trace):
    """How much of a recording's file is used, from its header (core/record/trace_format.h)."""
    with open(trace, "rb") as file:
        head = file.read(4096)
    count, = struct.unpack_from("<I", head, 20)
    claims, = struct.unpack_from("<Q", head, 96)
    used = {}
    for index in range(count):
        kind, _, _, _, bytes_used = struct.unpack_from("<IIQQQ", head, 1024 + 32 * index)
        used[kind] = bytes_used
    chunks = min(claims, used[1] // 4096)
    return (f"{4096 / 63:.1f} bytes an event, {used[3] >> 10} KiB table of stacks and "
            f"{used[4] >> 10} KiB of frames beside {chunks * 63} events")


def heaptrack_lines(harness, program, rounds):
    """heaptrack's own cost for malloc + free in the same rounds; one line where it is missing."""
    heaptrack = shutil.which("heaptrack")
    if heaptrack is None:
        return ["heaptrack is not installed: not measured"]
    native, under = [], []
    for _ in range(rounds):
        native.append(points(harness.run([program, "--malloc"], timeout=60)))
        under.append(points(harness.run(
            [heaptrack, "--raw", "-o", harness.scratch("heap"), program, "--malloc"], timeout=120)))
        for path in harness.scratch("").glob("heap*"):
            path.unlink()
    rows = [[depth, threads, spread([one[stacks, depth, threads] for one in native], "{:.0f}"),
             spread([b[stacks, depth, threads] - a[stacks, depth, threads]
                     for a, b in zip(native, under)], "{:.0f}")]
            for stacks, depth, threads in native[0]]
    return ["heaptrack --raw, malloc + free pair, ns of thread time",
            table(rows, ["depth", "threads", "pair natively", "+ heaptrack"])]


def timed(harness, *arguments):
    """(seconds, MiB of memory at most) of one run of the tool."""
    env = dict(os.environ)
    env["LD_LIBRARY_PATH"] = str(harness.build / "bin" / "lib")
    begin = time.monotonic()
    child = subprocess.Popen([harness.build / "bin" / "cachealloc", *map(str, arguments)], env=env,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    out = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise BenchError(f"cachealloc {arguments[0]}: {out.decode(errors='replace')[-300:]}")
    return time.monotonic() - begin, usage.ru_maxrss / 1024


def recording_of(harness, events):
    trace = harness.scratch(f"{events}.trace")
    if not trace.is_file():
        run = harness.run([harness.binary("bench/record_bench"), "--events", events], "default",
                          conf=f"ring_mb:{events * 70 // 1_000_000 + 64}", timeout=200,
                          extra={"CACHEALLOC_TRACE": str(trace)})
        if not run.ok:
            raise BenchError(f"record_bench --events: {run.why()}")
    return trace


def bench_read(harness, rounds):
    """The tool over long recordings: time and memory."""
    rows = []
    trace = recording_of(harness, READ_EVENTS)
    for command in ("report", "leaks", "peak", "check"):
        runs = [timed(harness, command, trace) for _ in range(min(rounds, 3))]
        rows.append([f"{command}, {READ_EVENTS:,} events", spread([s for s, _ in runs], "{:.2f}"),
                     f"{max(mib for _, mib in runs):.0f}"])
    size = trace.stat().st_size
    trace.unlink()
    trace = recording_of(harness, EXPORT_EVENTS)
    for form in FORMATS:
        target = harness.scratch(f"export.{form}")
        runs = []
        for _ in range(min(rounds, 3)):
            target.unlink(missing_ok=True)
            runs.append(timed(harness, "export", trace, "--format", form, "-o", target))
        rows.append([f"export {form}, {EXPORT_EVENTS:,} events",
                     spread([s for s, _ in runs], "{:.2f}"),
                     f"{max(mib for _, mib in runs):.0f}"])
        target.unlink()
    return [f"the tool over long recordings (the first file has {size >> 20} MiB); aims: report "
            "<= 10 s and <= 1 GB, export <= 5 s",
            table(rows, ["what", "s", "MiB at most"])]
