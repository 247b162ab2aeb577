"""What the recorder leaves of real programs, and what the tool makes of it: recordings with native
stacks, killed in mid-run, out of memory; leaks by function and line; the peak against a script of its
own; memory_viz files in PyTorch's own reader. Figures are in record_figures.py.
"""

import json
import re
import struct
import sys
import time

from harness import SKIPPED
from judge import HERE, NO_CACHE, PASS, SKIP, Outcome, difference, fail, has_module, under_shim
from turn_taking import TurnError, answer

FORMATS = ("memory_viz", "collapsed", "speedscope", "perfetto", "csv")
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


class Wrong(Exception):
    """What the case must say has failed; `run` is the process to show."""

    def __init__(self, note, run=None):
        super().__init__(note)
        self.run = run


def judged(case):
    """Makes Wrong and TurnError a failed outcome."""
    def run(harness):
        try:
            return case(harness)
        except (Wrong, TurnError) as error:
            shown = getattr(error, "run", None)
            return fail(str(error), *([shown] if shown else []))
    return run


def tool(harness, *arguments, timeout=60):
    """Standard output of the tool, which must succeed."""
    folder = harness.build / "bin"
    run = harness.run([folder / "cachealloc", *arguments], timeout=timeout, python=True,
                      extra={"LD_LIBRARY_PATH": str(folder / "lib")})
    if not run.ok:
        raise Wrong(f"cachealloc {arguments[0]}: {run.why()}", run)
    return run.out


def tool_json(harness, *arguments):
    text = tool(harness, *arguments, "--json")
    try:
        return json.loads(text)
    except ValueError as error:
        raise Wrong(f"cachealloc {arguments[0]} --json: {error}: {text[:200]!r}") from None


def recorded(harness, command, trace, mode="default", python=True, status=0, **kwargs):
    """Runs a program under the shim with its recording at `trace`."""
    extra = {**kwargs.pop("extra", {}), "CACHEALLOC_TRACE": str(trace)}
    run = harness.run(command, mode, python=python, extra=extra, timeout=100, **kwargs)
    if run.status == SKIPPED:
        return run
    if run.status != status:
        raise Wrong(f"recorded: {run.why()}", run)
    if not trace.is_file():
        raise Wrong(f"no recording at {trace.name}: {run.err[-300:]}", run)
    return run


def chunks_claimed(trace):
    """How far a recording has come, from its header (core/record/trace_format.h)."""
    try:
        with open(trace, "rb") as file:
            head = file.read(192)
    except FileNotFoundError:
        return 0
    return struct.unpack_from("<Q", head, 96)[0] if len(head) == 192 else 0


def killed(harness, command, trace, extra=None):
    """SIGKILL to a program that takes turns, in the middle of its second one."""
    child = harness.start(trace.stem, command, "default", python=True,
                          extra={**(extra or {}), "CACHEALLOC_TRACE": str(trace)})
    end = time.monotonic() + harness.time_left(90)
    try:
        answer(child, end)
        child.write_line("5")
        answer(child, end)
        before = chunks_claimed(trace)
        child.write_line("1000000")
        while chunks_claimed(trace) < before + 5:
            if time.monotonic() > end or child.process.poll() is not None:
                raise TurnError(f"{child.name}: its recording did not grow")
            time.sleep(0.01)
    finally:
        child.process.kill()
        run = harness.stop(child, 10)
    return run


def read_back(harness, name, trace):
    """report, check and every export of a recording, at the same time: (report, check, a line that
    says what came out)."""
    def export(form):
        target = harness.scratch(f"{trace.stem}.{form}")
        begin = time.monotonic()
        tool(harness, "export", trace, "--format", form, "-o", target)
        if not target.is_file() or target.stat().st_size < 100:
            raise Wrong(f"export {form}: nothing written")
        return f"{form} {target.stat().st_size >> 10} KiB {time.monotonic() - begin:.1f} s"

    report, checked, _, *sizes = harness.all_at_once([
        lambda: tool_json(harness, "report", trace), lambda: tool_json(harness, "check", trace),
        lambda: tool(harness, "report", trace),
        *(lambda form=form: export(form) for form in FORMATS)])
    return report, checked, f"{name}: {'; '.join(sizes)}"


def counters_text(checked):
    """Who captured the stacks: what one event cost follows from it."""
    found = {}

    def visit(node):
        if isinstance(node, dict):
            for key, value in node.items():
                if isinstance(value, (dict, list)):
                    visit(value)
                elif re.match(r"stacks_|overwritten|lost|nested|events|records", key):
                    found[key] = value
        elif isinstance(node, list):
            for value in node:
                visit(value)

    visit(checked)
    return ", ".join(f"{key} {value}" for key, value in found.items())


def numbers(node):
    """Every number in a JSON document."""
    if isinstance(node, dict):
        for value in node.values():
            yield from numbers(value)
    elif isinstance(node, list):
        for value in node:
            yield from numbers(value)
    elif isinstance(node, (int, float)) and not isinstance(node, bool):
        yield node


def peak_of_events(harness, trace):
    run = harness.run([sys.executable, HERE / "record_peak.py", trace], python=True)
    if not run.ok:
        raise Wrong(f"record_peak.py: {run.why()}", run)
    return int(run.out)


def same_peak(harness, trace, report):
    """The peak of the report is that of the independent script."""
    expected = peak_of_events(harness, trace)
    if expected not in numbers(report):
        raise Wrong(f"the events peak at {expected} bytes; the report says nothing of it")
    return f"peak {expected} bytes in the report and from the events"


def three_runs(module, script, arguments, turns_arguments, extra):
    """A Python program natively, recorded, and recorded until it is killed, at the same time."""
    def case(harness):
        if not has_module(harness, module):
            return Outcome(SKIP, f"no module {module}")
        trace, cut = (harness.scratch(f"{module}{end}.trace") for end in ("", "_killed"))
        command = [sys.executable, HERE / script, *arguments]
        native, run, _ = harness.all_at_once([
            lambda: harness.run(command, "native", 100, python=True, extra=extra),
            lambda: recorded(harness, command, trace, extra=extra),
            lambda: killed(harness, [sys.executable, *turns_arguments], cut, extra)])
        if SKIPPED in (native.status, run.status):
            return Outcome(SKIP, native.out.strip())
        wrong = under_shim(run) or (None if native.ok else f"natively: {native.why()}")
        if wrong or run.out != native.out:
            raise Wrong(wrong or f"other output: {difference(native.out, run.out)}", run)
        report, checked, line = read_back(harness, "whole", trace)
        cut_report, cut_checked, cut_line = read_back(harness, "killed", cut)
        return Outcome(PASS, lines=[line, cut_line, same_peak(harness, trace, report),
                                    f"whole: {counters_text(checked)}",
                                    f"killed: {counters_text(cut_checked)}",
                                    "killed, " + same_peak(harness, cut, cut_report)])
    return judged(case)


record_torch = three_runs("torch", "torch_gpt.py", ("--steps", 20),
                          (HERE / "torch_train.py",), NO_CACHE)
record_cupy = three_runs("cupy", "cupy_loop.py", (), (HERE / "cupy_loop.py", "--turns"), {})


def expectations(run):
    """What leak_app says that a report must find."""
    return [json.loads(line) for line in run.out.splitlines() if line.startswith("{")]


@judged
def record_leak(harness):
    """Three planted allocations: exactly they, by function, line and size."""
    program = harness.binary("gpu/leak_app")
    if program is None:
        return fail("not built: gpu/leak_app")
    trace = harness.scratch("leak.trace")
    run = recorded(harness, [program], trace, python=False)
    leaks = tool_json(harness, "leaks", trace)
    missing = missing_places(leaks, expectations(run))
    if missing:
        raise Wrong(f"{missing} in {json.dumps(leaks)[:1500]}", run)
    if leaks.get("allocations") != 3:
        raise Wrong(f"3 leaks, not {leaks.get('allocations')}", run)
    text = tool(harness, "leaks", trace)
    return Outcome(PASS, lines=text.splitlines()[:12])


def groups_in(node):
    """Every list of a JSON document whose elements have frames, and every such object alone."""
    if isinstance(node, dict):
        if "frames" in node:
            yield [node]
        for value in node.values():
            yield from groups_in(value)
    elif isinstance(node, list):
        if node and all(isinstance(one, dict) and "frames" in one for one in node):
            yield node
        for value in node:
            yield from groups_in(value)


def passes(place, frames):
    """Whether a stack goes through a place (function, and line unless that is 0)."""
    return any(re.search(rf"\b{place['function']}\b", frame.get("function", "")) and
               (place["line"] == 0 or (frame.get("line") == place["line"] and
                                       frame.get("file", "").endswith("leak_app.cu")))
               for frame in frames)


def missing_places(document, expected):
    """None, or what of the expected places (function, line, count, bytes) a document lacks: some list
    in it must hold just those bytes in stacks through the place."""
    for place in expected:
        total = place["count"] * place["bytes"]
        held = {sum(one.get("bytes", 0) for one in group if passes(place, one["frames"]))
                for group in groups_in(document)}
        if total not in held:
            return f"no {place['count']} x {place['bytes']} bytes of {place['function']}, " \
                   f"line {place['line']}"
    return None


@judged
def record_oom(harness):
    """A run that ends out of memory: its file is kept unasked, and names request, place, holders."""
    program = harness.binary("gpu/leak_app")
    if program is None:
        return fail("not built: gpu/leak_app")
    folder = harness.scratch("oom")
    folder.mkdir(exist_ok=True)
    run = harness.run([program, "--fill"], "default", extra={"CACHEALLOC_TRACE_DIR": str(folder)})
    if run.status != 3:
        raise Wrong(f"leak_app --fill: {run.why()}", run)
    kept = list(folder.glob("*.trace"))
    if len(kept) != 1:
        raise Wrong(f"one file kept, not {kept}", run)
    report = tool_json(harness, "report", kept[0])
    missing = missing_places(report, expectations(run))
    if missing:
        raise Wrong(f"{missing} in {json.dumps(report)[:1500]}", run)
    text = tool(harness, "report", kept[0])
    return Outcome(PASS, lines=[line for line in text.splitlines()
                                if re.search(r"memory|hold_|ask_for", line)][:12])


@judged
def record_expandable(harness):
    """PyTorch's own allocator with expandable segments: cuMemCreate and cuMemMap are in the report."""
    if not has_module(harness, "torch"):
        return Outcome(SKIP, "no module torch")
    trace = harness.scratch("expandable.trace")
    run = recorded(harness, [sys.executable, HERE / "torch_gpt.py", "--steps", 3], trace,
                   extra=EXPANDABLE)
    report = json.dumps(tool_json(harness, "report", trace))
    held = peak_of_events(harness, trace)
    missing = [word for word in ("physical",) if word not in report]
    if missing or held < 100 << 20:
        raise Wrong(f"{missing} missing; physical memory {held} bytes: {report[:1000]}", run)
    return Outcome(PASS, lines=[f"peak {held >> 20} MiB, of cuMemCreate"])


@judged
def record_memory_viz(harness):
    """PyTorch's own reader of memory_viz files takes what the tool writes."""
    if not has_module(harness, "torch"):
        return Outcome(SKIP, "no module torch")
    trace = harness.scratch("torch.trace")
    if not trace.is_file():
        recorded(harness, [sys.executable, HERE / "torch_gpt.py", "--steps", 5], trace,
                 extra=NO_CACHE)
    pickle = harness.scratch("torch.pickle")
    tool(harness, "export", trace, "--format", "memory_viz", "-o", pickle)
    plots = {name: harness.scratch(f"{name}.html") for name in ("segment_plot", "trace_plot")}
    reader = [sys.executable, "-m", "torch.cuda._memory_viz"]
    stats, text, *drawn = harness.run_all(
        [{"command": [*reader, name, pickle], "python": True} for name in ("stats", "trace")] +
        [{"command": [*reader, name, pickle, "-o", target], "python": True}
         for name, target in plots.items()])
    for run in (stats, text, *drawn):
        if not run.ok:
            raise Wrong(f"_memory_viz {run.command[3]}: {run.why()}", run)
    for name, target in plots.items():
        if not target.is_file() or target.stat().st_size < 10000:
            raise Wrong(f"_memory_viz {name}: no plot")
    if "alloc" not in text.out or not re.search(r"\d", stats.out):
        raise Wrong(f"_memory_viz: {stats.out[-500:]} {text.out[-500:]}", text)
    return Outcome(PASS, lines=stats.out.splitlines()[-8:] + text.out.splitlines()[-4:])
