"""How a process ends: what its file is like afterwards, and whether it is still there."""

from raw_trace import KINDS, RawTrace

THREADS, PAIRS = 4, 500


def the_file(case):
    """The one recording below the case's folder."""
    found = case.files()
    case.expect(len(found) == 1, f"one file, not {found}")
    return case.folder / found[0]


def whole(case, path, threads=THREADS):
    """Reads a file whose writer is gone, and holds the tool's `check` against it."""
    trace = RawTrace(path)
    case.expect(trace.torn <= threads + 1, f"a torn record a thread at most, not {trace.torn}")
    checked = case.tool_json("check", path)
    if checked is not None:
        case.tool("report", path)
    return trace


def everything_recorded(case, trace):
    """Each thread made its pairs before the end: the history holds them, the live table the block
    that was kept."""
    made = [event for event in trace.of_kind("alloc") if event.size == 4096]
    per_thread = {}
    for event in made:
        per_thread[event.thread] = per_thread.get(event.thread, 0) + 1
    case.expect(len(per_thread) == THREADS, f"{THREADS} threads, not {len(per_thread)}")
    case.expect(min(per_thread.values()) >= PAIRS, f"{PAIRS} pairs a thread: {per_thread}")
    kept = [event for event in trace.of_kind("alloc") if event.size == 5 << 20]
    case.expect(len(kept) == 1 and kept[0].stack, "the block that was kept, with its stack")
    # Ownership never overlaps: of one address alloc and free take turns in the order of time.
    owned = {}
    for event in trace.events:
        kind = KINDS.get(event.kind)
        if kind in ("alloc", "free"):
            case.expect(owned.get(event.address, "free") != kind,
                        f"{kind} of {event.address:#x} twice in a row")
            owned[event.address] = kind


def crash(way, status):
    """Ends badly: the file is kept, complete up to the last event, in state `recording`."""
    def run(case):
        command = [case.program("endings"), way]
        result = case.kill_when_ready(command) if way == "kill" else case.run(command)
        case.expect_run(result, status, "ready\n" if way == "kill" else "")
        path = the_file(case)
        case.expect(path.name == f"endings.{result.pid}.trace", f"named after program and process: "
                                                                 f"{path.name}")
        case.expect(path.stat().st_mode & 0o777 == 0o600, "readable by its owner alone")
        trace = whole(case, path)
        case.expect(trace.state == "recording" and trace.pid == result.pid,
                    f"state {trace.state}, pid {trace.pid}")
        everything_recorded(case, trace)
        return f"{len(trace.events)} events, {trace.torn} torn"
    return run


def clean(way):
    """Leaves through exit(): no file is left, unless it was asked for by name."""
    def run(case):
        command = [case.program("endings"), way]
        out = "done\n" if way == "return" else ""
        case.expect_run(case.run(command), 7, out)
        case.expect(case.files() == [], f"no file left, not {case.files()}")
        wanted = case.folder / "asked for.trace"
        case.expect_run(case.run(command, CACHEALLOC_TRACE=wanted), 7, out)
        case.expect(case.files() == [wanted.name], f"the file asked for, not {case.files()}")
        trace = whole(case, wanted)
        case.expect(trace.state == "clean_exit", f"state {trace.state}")
        everything_recorded(case, trace)
    return run


def asked_twice(case):
    """A name that exists already is nobody's to overwrite: the second run goes unrecorded and says
    so in one line."""
    wanted = case.folder / "one.trace"
    command = [case.program("recursion")]
    case.expect_run(case.run(command, CACHEALLOC_TRACE=wanted), 7, "recursion ok\n")
    before = wanted.read_bytes()
    result = case.run(command, CACHEALLOC_TRACE=wanted)
    case.expect(result.status == 7 and result.out == "recursion ok\n", "the host is undisturbed")
    case.expect(len(result.said) == 1, f"one line: {result.said}")
    case.expect(wanted.read_bytes() == before, "the first file as it was")


def recursion(case):
    """10,000 calls deep: the stack is cut where the file says, and marked."""
    wanted = case.folder / "deep.trace"
    result = case.run([case.program("recursion")], CACHEALLOC_TRACE=wanted)
    case.expect_run(result, 7, "recursion ok\n")
    trace = whole(case, wanted)
    deep = [event for event in trace.of_kind("alloc") if event.size == 3 << 20]
    case.expect(len(deep) == 3, f"3 deep allocations, not {len(deep)}")
    case.expect(len({event.stack for event in deep}) == 1, "one stack for all three")
    frames, cut = trace.stack(deep[0].stack)
    case.expect(cut, "the stack is marked as cut")
    case.expect(len(frames) == trace.stack_depth, f"{trace.stack_depth} frames, not {len(frames)}")
    case.expect(len(set(frames[5:])) == 1, "the frames of the recursion are one place")
    shallow = [event for event in trace.of_kind("alloc") if event.size == 1 << 20]
    frames, cut = trace.stack(shallow[0].stack)
    case.expect(not cut and 2 <= len(frames) <= 12, f"a whole stack of {len(frames)} frames")


ENDINGS = {
    "return": clean("return"),
    "exit": clean("exit"),
    "underscore_exit": crash("_exit", 7),
    "quick_exit": crash("quick_exit", 7),
    "abort": crash("abort", -6),
    "segv": crash("segv", -11),
    "kill": crash("kill", -9),
    "asked_twice": asked_twice,
    "recursion": recursion,
}
