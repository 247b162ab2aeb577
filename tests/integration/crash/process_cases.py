"""Processes that multiply, threads that come and go, signals in the middle, code that changes."""

import json
import re

from ending_cases import whole
from raw_trace import RawTrace


def forks(way, *started):
    """Children without CUDA leave no file; what they start has its own; the parent's goes on."""
    def run(case):
        names = case.folder / "%e.%p.trace"
        command = [case.program("forks"), way]
        if started:
            command += [case.program(started[0]), *started[1:]]
        result = case.run(command, CACHEALLOC_TRACE=names)
        case.expect(result.status == 7 and not result.said, f"status {result.status}, {result.err}")
        case.expect(result.out.endswith("forks ok\n"), f"output {result.out!r}")
        files = case.files()
        expected = {"forks"} | ({started[0]} if started else set())
        case.expect({name.split(".")[0] for name in files} == expected and
                    len(files) == len(expected), f"a file for each of {expected}, not {files}")
        for name in files:
            trace = whole(case, case.folder / name)
            case.expect(name.split(".")[1] == str(trace.pid), f"{name} holds pid {trace.pid}")
            end = "recording" if name.startswith("forks") else "clean_exit"
            case.expect(trace.state == end, f"{name}: state {trace.state}")
            sizes = {event.size for event in trace.of_kind("alloc")}
            mine = {1 << 20, 3 << 20} if name.startswith("forks") else {4096, 5 << 20}
            case.expect(sizes == mine, f"{name}: sizes {sorted(sizes)}, not {sorted(mine)}")
            case.expect(len(trace.threads()) == len({e.thread for e in trace.events if e.thread}),
                        "no thread that recorded nothing")
        # Without a name a clean exit takes its own file away, and no other.
        result = case.run(command)
        mine = f"forks.{result.pid}.trace"
        case.expect(case.files(case.traces) == [mine], f"{mine} alone, not {case.files(case.traces)}")
    return run


def short_threads(case):
    """Every thread has a number of its own, and none keeps memory after its end."""
    wanted = case.folder / "threads.trace"
    result = case.run([case.program("short_threads")], CACHEALLOC_TRACE=wanted)
    case.expect_run(result, 7, "short_threads ok\n")
    early, late = map(int, re.search(r"private KiB (\d+) then (\d+)", result.err).groups())
    case.expect(late - early < 1024, f"private memory grew from {early} to {late} KiB")
    trace = whole(case, wanted, threads=0)
    made = {event.size: event.thread for event in trace.of_kind("alloc")}
    freed = {event.size: event.thread for event in trace.of_kind("free")}
    case.expect(len(made) == 1000 and len(set(made.values())) == 1000, "a number for each thread")
    case.expect(freed == made, "each freed by the thread that made it")
    threads = trace.threads()
    case.expect(set(made.values()) <= set(threads), "each in the list of threads")
    return f"private {early} then {late} KiB"


def storm(unwinder):
    """Handlers that allocate in the middle of unwinding and recording."""
    def run(case):
        case.need_null_driver()
        wanted = case.folder / "storm.trace"
        result = case.run([case.program("storm"), 2], CACHEALLOC_TRACE=wanted,
                          CRASH_DRIVER=case.args.null_driver,
                          CACHEALLOC_CONF=f"pool:False,unwinder:{unwinder}")
        case.expect_run(result, 7, "storm ok\n")
        handled = int(re.search(r"handled (\d+)", result.err).group(1))
        trace = RawTrace(wanted)
        case.expect(trace.torn == 0, f"{trace.torn} torn records")
        mine = [event for event in trace.of_kind("alloc") if event.size == 1111]
        case.expect(len(mine) >= 2 * 40000, f"every call of the program: {len(mine)}")
        places = {event.stack for event in mine}
        case.expect(len(places) >= 40000, f"a stack for each place: {len(places)}")
        inside = sum(event.size == 2222 for event in trace.of_kind("alloc"))
        nested = trace.counters["nested"]
        case.expect(inside <= handled and nested > 0,
                    f"{handled} handlers: {inside} recorded, {nested} events nested")
        return f"{handled} handlers, {inside} recorded, {nested} events inside the recorder"
    return run


def swapped(case):
    """Other code at the addresses of code that is gone: no stack may get the other's name."""
    wanted = case.folder / "swapped.trace"
    result = case.run([case.program("swapped"), case.program("libswapped_alpha.so"),
                       case.program("libswapped_beta.so")], CACHEALLOC_TRACE=wanted)
    if result.status == 77:
        case.skip(result.out.strip())
    case.expect_run(result, 7, "swapped ok\n")
    trace = whole(case, wanted)
    by_size = {}
    for event in trace.of_kind("alloc"):
        by_size.setdefault(event.size, set()).add(event.stack)
    case.expect({size: len(stacks) for size, stacks in by_size.items()} ==
                {3 << 20: 1, 5 << 20: 1, 7 << 20: 1}, f"a stack for each way: {by_size}")
    case.expect(by_size[3 << 20] != by_size[5 << 20] != by_size[7 << 20],
                "stacks of different code are different stacks")
    text = case.tool("leaks", wanted, "--json")
    if text is not None:
        named_rightly(case, text)


def named_rightly(case, text):
    """In the leaks, the block of a size is alpha's or beta's, or said to be of changed code."""
    alpha, beta = "alpha_allocates", "beta_allocates"
    seen = set()

    def visit(node):
        if isinstance(node, dict):
            words = json.dumps(node)
            for size, right, wrong in ((3 << 20, alpha, beta), (5 << 20, beta, alpha),
                                       (7 << 20, alpha, beta)):
                if size in node.values() or 3 * size in node.values() or 2 * size in node.values():
                    if right in words and wrong not in words:
                        seen.add(size)
            for value in node.values():
                visit(value)
        elif isinstance(node, list):
            for value in node:
                visit(value)

    visit(json.loads(text))
    case.expect(seen == {3 << 20, 5 << 20, 7 << 20}, f"each leak under its own name: {seen}: {text[:1500]}")


PROCESSES = {
    "fork": forks("fork"),
    "double_fork": forks("double_fork"),
    "vfork": forks("vfork", "endings", "return"),
    "spawn": forks("spawn", "endings", "return"),
    "short_threads": short_threads,
    "storm_auto": storm("auto"),
    "storm_libunwind": storm("libunwind"),
    "storm_gcc": storm("gcc"),
    "swapped": swapped,
}
