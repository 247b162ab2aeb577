#!/usr/bin/env python3
"""One case of what a process records: record_test.py CASE SHIM PROGRAM [RUNTIME..]"""

import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from trace_reader import LARGE, PASSED, SECOND, SETTLED, STREAM_ORDERED, Trace, space

CASE, SHIM, PROGRAM, *RUNTIMES = sys.argv[1:]
HERE = tempfile.TemporaryDirectory(prefix="cachealloc-record-")
FOLDER = Path(HERE.name)
ON_DEVICE = {"pooled", "device", "stream_ordered", "managed", "array", "pitched", "explicit_pool",
             "physical"}


def expect(condition, what):
    if not condition:
        sys.exit(f"{CASE}: {what}")


def environment(conf="", **more):
    env = {name: value for name, value in os.environ.items()
           if not name.startswith("CACHEALLOC_") and name != "TMPDIR"}
    env.update(more, LD_PRELOAD=":".join(RUNTIMES + [SHIM]), CACHEALLOC_CONF=conf)
    return env


def run(mode, conf="", **more):
    """Runs the program; returns what it printed and what the shim said."""
    done = subprocess.run([PROGRAM, mode], env=environment(conf, **more), text=True, cwd=FOLDER,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=100, check=False)
    expect(done.returncode == 0, f"status {done.returncode}: {done.stderr}")
    said = [line for line in done.stderr.splitlines() if line.startswith("cachealloc")]
    return [line.split() for line in done.stdout.splitlines()], said


def record(mode, conf="", **more):
    """The same with a recording that is kept; returns that instead of what the shim said."""
    path = FOLDER / "kept.trace"
    printed, said = run(mode, conf, CACHEALLOC_TRACE=str(path), **more)
    expect(mode == "oom" or not said, f"said: {said}")
    trace = Trace(path)
    check_history(trace)
    return printed, trace


def covered(segments, address, size):
    """Whether segments without a hole hold all of these bytes."""
    end = address + size
    base = max((base for base in segments if base <= address), default=address)
    while base in segments and base + segments[base] < end:
        base += segments[base]
    return base in segments and base <= end <= base + segments[base]


def check_history(trace):
    """The invariants of any whole history."""
    expect(trace.counters["lost"] == 0 and trace.counters["overwritten"] == 0, "events are missing")
    live, pending, segments = {}, {}, {}
    for one in trace.events:
        key = (space(one), one.address)
        pooled = one.memory == "pooled"
        if one.kind == "alloc":
            expect(key not in live and key not in pending, f"handed out twice: {one}")
            if pooled:
                expect(covered(segments, one.address, one.size + one.extra), f"in no segment: {one}")
            live[key] = one
        elif one.kind == "free":
            was = live.pop(key, None)
            expect(was is not None, f"freed although not live: {one}")
            expect((was.size, was.extra, was.memory, was.stack, was.device, was.pool) ==
                   (one.size, one.extra, one.memory, one.stack, one.device, one.pool),
                   f"not what was allocated: {was} {one}")
            if not one.flags & SETTLED:
                pending[key] = one
        elif one.kind == "free_completed":
            was = pending.pop(key, None)
            expect(was is not None and was.size == one.size, f"completed although not free: {one}")
        elif one.kind in ("segment_alloc", "segment_map"):
            expect(one.address not in segments, f"segment twice: {one}")
            segments[one.address] = one.size
        elif one.kind in ("segment_free", "segment_unmap"):
            size = segments.pop(one.address, None)
            expect(size == one.size, f"unknown segment: {one}")
            inside = [key for key in list(live) + list(pending)
                      if key[0] == "device" and one.address <= key[1] < one.address + size]
            expect(not inside, f"segment freed under {inside}")
    table = {(space(one), one.address): one.size for one in trace.live if one.kind == "alloc"}
    expect(table == {key: one.size for key, one in live.items()}, "the live table is wrong")
    table = {one.address: one.size for one in trace.live
             if one.kind in ("segment_alloc", "segment_map")}
    expect(table == segments, "the live table's segments are wrong")


def check_against(printed, trace):
    """The program's own list is the history, but for what is called `none`."""
    wanted = [("alloc", line[1], int(line[2], 16), int(line[3])) for line in printed
              if line[0] == "alloc" and line[1] != "none"]
    freed = [("free", line[1], int(line[2], 16)) for line in printed
             if line[0] == "free" and line[1] != "none"]
    got = [("alloc", one.memory, one.address, one.size) for one in trace.of_kind("alloc")]
    expect(Counter(got) == Counter(wanted), f"recorded {got}\nprogram {wanted}")
    got = [("free", one.memory, one.address) for one in trace.of_kind("free")]
    expect(Counter(got) == Counter(freed), f"recorded {got}\nprogram {freed}")


def kinds():
    printed, trace = record("kinds")
    check_against(printed, trace)
    expect(not [one for one in trace.live if one.kind == "alloc"], "something is live")
    expect(trace.state == "clean_exit" and trace.seen == 0, f"{trace.state} {trace.seen}")
    expect(all(one.stack for one in trace.of_kind("alloc")), "an allocation without a stack")
    expect(trace.counters["unknown_frees"] == 0, "unknown frees")
    large = {bool(one.flags & LARGE) for one in trace.of_kind("segment_alloc")}
    expect(large == {True, False}, f"segments {large}")


def kinds_without_pool():
    printed, trace = record("kinds", "pool:False,stacks:off")
    names = Counter(one.memory for one in trace.of_kind("alloc"))
    expect("pooled" not in names and names["device"] == 2 and names["stream_ordered"] == 1,
           f"{names}")
    wanted = [line for line in printed if line[0] == "alloc" and line[1] != "none"]
    expect(len(trace.of_kind("alloc")) == len(wanted), "allocations are missing")
    expect(not trace.live, "something is live")
    expect(not any(one.stack for one in trace.events), "a stack with stacks:off")
    expect(trace.statistics["driver_alloc_calls"] == 2, f"{trace.statistics}")
    expect(trace.statistics["driver_alloc_ns"] > 0, f"{trace.statistics}")


def all_stacks():
    _, trace = record("kinds", "stacks:all")
    frees = [one for one in trace.of_kind("free")]
    expect(frees and all(one.free_stack for one in frees), "a free without a stack")


def peak():
    """The counters' peak is that of the history."""
    _, trace = record("kinds")
    now = most = reserved = most_reserved = 0
    for one in trace.events:
        if one.memory in ON_DEVICE and one.kind in ("alloc", "free"):
            now += one.size if one.kind == "alloc" else -one.size
            most = max(most, now)
        if one.kind in ("segment_alloc", "segment_free"):
            reserved += one.size if one.kind == "segment_alloc" else -one.size
            most_reserved = max(most_reserved, reserved)
    device = trace.devices[0]
    expect(device.live_peak == most, f"live peak {device.live_peak}, history {most}")
    expect(device.live == now == 0, f"live {device.live}, history {now}")
    expect(device.reserved_peak == most_reserved, f"{device.reserved_peak} {most_reserved}")
    expect(device.host == 0 and device.host_peak == 6000 + 7000 + 8192, f"host {device.host_peak}")


def growing():
    """Pieces and second mappings; only pieces count as reserved."""
    _, trace = record("growing", "expandable_segments:True,stats:False", SIMCUDA="memory_mb:64")
    pieces = [one for one in trace.of_kind("segment_map") if not one.flags & SECOND]
    second = [one for one in trace.of_kind("segment_map") if one.flags & SECOND]
    expect(pieces and not trace.of_kind("segment_alloc"), "no piece")
    expect(second, "no second mapping")
    alloc = {one.address for one in trace.of_kind("alloc")}
    expect(all(one.address in alloc for one in second), "a second mapping for nothing")
    reserved = most = 0
    for one in trace.events:
        if one.kind in ("segment_map", "segment_unmap") and not one.flags & SECOND:
            reserved += one.size if one.kind == "segment_map" else -one.size
            most = max(most, reserved)
    device = trace.devices[0]
    expect(most <= 64 << 20, f"{most} bytes of a device of 64 MiB")
    expect((device.reserved, device.reserved_peak) == (reserved, most),
           f"reserved {device.reserved} {device.reserved_peak}, history {reserved} {most}")


def not_growable():
    """Where memory cannot be mapped: said once, and the program runs."""
    _, said = run("context", "expandable_segments:True", SIMCUDA="vmm:0")
    expect(len(said) == 1 and "expandable_segments:True" in said[0], f"said: {said}")


def stream():
    _, trace = record("stream")
    ordered = [one for one in trace.events if one.flags & STREAM_ORDERED]
    handles = {one.stream for one in ordered}
    expect(len(handles) == 2 and 0 not in handles, f"streams {handles}")
    expect(len([one for one in ordered if one.kind == "alloc"]) == 40, "allocations on streams")
    expect(len([one for one in ordered if one.kind == "free"]) == 40, "frees on streams")
    beside = [one for one in trace.of_kind("alloc") if one.memory == "device"]
    expect(len(beside) == 1 and beside[0].size == 2048 and beside[0].flags & PASSED, f"{beside}")
    expect(not [one for one in trace.events if one.size == 8192], "a node of a graph is no memory")


def contexts():
    printed, trace = record("context")
    allocs = trace.of_kind("alloc")
    expect(len(allocs) == len([line for line in printed if line[0] == "alloc"]), f"{allocs}")
    expect({one.pool for one in allocs} == {0, 1, 2, 3}, "contexts have numbers of their own")
    expect(not [one for one in trace.live if one.kind == "alloc"], "what ended is live")
    ended = [one for one in trace.of_kind("free") if one.call == 18]
    expect(Counter(one.memory for one in ended) == {"pooled": 6, "managed": 3, "pinned": 3},
           f"{Counter(one.memory for one in ended)}")


def refused():
    printed, trace = record("refused")
    check_against(printed, trace)
    expect(trace.counters["unknown_frees"] == 0, "a refused free was counted")


def nothing():
    _, trace = record("nothing")
    expect(not trace.events and trace.counters["unknown_frees"] == 0, f"{trace.events}")


def early():
    printed, trace = record("early")
    check_against(printed, trace)
    expect(len(trace.of_kind("alloc")) == 1 and trace.events[-1].stack, f"{trace.events}")


def threads():
    _, trace = record("threads")
    expect(len(trace.of_kind("alloc")) == len(trace.of_kind("free")) == 8 * 3000, "events missing")
    expect(len({one.thread for one in trace.of_kind("alloc")}) == 8, "threads have numbers")
    expect(trace.devices[0].live == 0, f"live {trace.devices[0].live}")
    expect(trace.statistics["allocations"] == 8 * 3000, f"{trace.statistics}")


def forked():
    _, trace = record("fork")
    expect(len(trace.of_kind("alloc")) == 1 and trace.state == "clean_exit", "the child is in it")
    _, said = run("fork", CACHEALLOC_TRACE_DIR=str(FOLDER))
    expect(not said and list(FOLDER.glob("record_app.*")) == [], f"left behind: {said}")


def killed():
    program = subprocess.Popen([PROGRAM, "hold"], text=True, stdout=subprocess.PIPE, cwd=FOLDER,
                               env=environment(CACHEALLOC_TRACE_DIR=str(FOLDER)))
    printed = []
    for line in program.stdout:
        if line.strip() == "ready":
            break
        printed.append(line.split())
    program.send_signal(signal.SIGKILL)
    program.wait()
    path = FOLDER / f"record_app.{program.pid}.trace"
    trace = Trace(path)
    check_history(trace)
    check_against(printed, trace)
    expect(trace.state == "recording" and trace.pid == program.pid, trace.state)
    expect(stat.S_IMODE(path.stat().st_mode) == 0o600, "others may read it")


def out_of_memory():
    _, said = run("oom", CACHEALLOC_TRACE_DIR=str(FOLDER))
    paths = list(FOLDER.glob("record_app.*.trace"))
    expect(len(paths) == 1, f"kept: {paths}")
    told = [line for line in said if f"cachealloc report {paths[0]}" in line]
    expect(len(told) == 1, f"said: {said}")
    trace = Trace(paths[0])
    check_history(trace)
    failed = trace.of_kind("out_of_memory")
    expect([one.size for one in failed] == [1 << 40, 1 << 40], f"{failed}")
    expect(all(one.stack and 0 < one.stream < 1 << 40 for one in failed), f"{failed}")
    expect(trace.seen & 1, "the header does not say so")


def removed():
    _, said = run("kinds", CACHEALLOC_TRACE_DIR=str(FOLDER))
    expect(not said and not list(FOLDER.iterdir()), "something is left")


def kept():
    path = FOLDER / "kept.trace"
    record("kinds")
    expect(stat.S_IMODE(path.stat().st_mode) == 0o600, "others may read it")
    _, said = run("kinds", CACHEALLOC_TRACE=str(path)) # exists: left alone
    expect(len(said) == 1 and "nothing is recorded" in said[0] and str(path) in said[0], f"{said}")


def placeholders():
    _, said = run("kinds", CACHEALLOC_TRACE=str(FOLDER / "a%%b-%e-%h-%p.trace"))
    host = os.uname().nodename
    found = [path.name for path in FOLDER.iterdir()]
    expect(len(found) == 1 and found[0].startswith(f"a%b-record_app-{host}-"), f"{found} {said}")
    pid = found[0].removeprefix(f"a%b-record_app-{host}-").removesuffix(".trace")
    expect(Trace(FOLDER / found[0]).pid == int(pid), found[0])


def unknown_placeholder():
    _, said = run("kinds", CACHEALLOC_TRACE=str(FOLDER / "%q.trace"))
    expect(len(said) == 1 and "%q" in said[0], f"{said}")
    expect((FOLDER / "%q.trace").exists(), "not taken literally")


def private_directory():
    printed = subprocess.Popen([PROGRAM, "hold"], text=True, stdout=subprocess.PIPE, cwd=FOLDER,
                               env=environment(TMPDIR=str(FOLDER)))
    while printed.stdout.readline().strip() != "ready":
        pass
    printed.kill()
    printed.wait()
    folder = FOLDER / f"cachealloc-{os.geteuid()}"
    expect(stat.S_IMODE(folder.stat().st_mode) == 0o700, "the directory is not private")
    expect((folder / f"record_app.{printed.pid}.trace").exists(), f"{list(folder.iterdir())}")
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    elsewhere = FOLDER / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    folder.symlink_to(elsewhere) # somebody's trap
    _, said = run("kinds", TMPDIR=str(FOLDER))
    expect(len(said) == 1 and str(folder) in said[0], f"{said}")
    expect(not list(elsewhere.iterdir()), "followed a link")


def directories_in_turn():
    _, said = run("kinds", CACHEALLOC_TRACE_DIR=str(FOLDER / "none"), TMPDIR=str(FOLDER))
    expect(len(said) == 1 and str(FOLDER / "cachealloc-") in said[0], f"{said}")


def nowhere():
    for name in (str(FOLDER / "none" / "x.trace"), str(FOLDER)):
        _, said = run("kinds", CACHEALLOC_TRACE=name)
        expect(len(said) == 1 and "nothing is recorded" in said[0] and name in said[0] and
               "CACHEALLOC_TRACE" in said[0], f"{said}")


def switched_off():
    for conf in ("off", "record:off"):
        _, said = run("kinds", conf, CACHEALLOC_TRACE=str(FOLDER / "x.trace"))
        expect(not said and not list(FOLDER.iterdir()), f"{conf}: {said}")


def without_cuda():
    _, said = run("none", CACHEALLOC_TRACE=str(FOLDER / "x.trace"))
    expect(not said and not list(FOLDER.iterdir()), f"{said}")


def old_files():
    folder = FOLDER / f"cachealloc-{os.geteuid()}"
    folder.mkdir(mode=0o700)
    gone = subprocess.Popen(["true"])
    gone.wait()
    names = [f"app.{gone.pid}.trace"] + [f"app.{gone.pid}-{n}.trace" for n in range(2, 30)]
    for age, name in enumerate(names):
        (folder / name).write_bytes(b"")
        os.utime(folder / name, (1_000_000 - age, 1_000_000 - age))
    others = [f"app.{os.getpid()}.trace", "app.trace", "notes.txt", f"app.{gone.pid}.txt", ".trace"]
    for name in others:
        (folder / name).write_bytes(b"")
        os.utime(folder / name, (1000, 1000))
    (folder / f"link.{gone.pid}.trace").symlink_to("notes.txt")
    run("kinds", TMPDIR=str(FOLDER))
    left = {path.name for path in folder.iterdir()}
    expect(left == set(names[:16]) | set(others) | {f"link.{gone.pid}.trace"}, f"{sorted(left)}")


def settings():
    _, trace = record("kinds", "slack_mb:7", CUDA_VISIBLE_DEVICES="0", PYTORCH_ALLOC_CONF="x:y")
    wanted = {"exe": PROGRAM, "command": f"{PROGRAM} kinds", "cwd": str(FOLDER),
              "host": os.uname().nodename, "conf": "slack_mb:7", "CUDA_VISIBLE_DEVICES": "0",
              "PYTORCH_ALLOC_CONF": "x:y"}
    for name, value in wanted.items():
        expect(trace.settings.get(name) == value, f"{name}: {trace.settings.get(name)}")
    expect("slack_mb:7" in trace.settings["options"] and SHIM in trace.settings["LD_PRELOAD"],
           f"{trace.settings}")
    expect(trace.settings["driver"].startswith("13.0"), f"{trace.settings}")
    expect(trace.devices[0].name.startswith(b"Simulated") and trace.devices[0].total == 4 << 30,
           f"{trace.devices[0]}")


globals()[CASE]()
