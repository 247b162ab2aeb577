"""Cases of stream capture in programs that know nothing of a shim: PyTorch and CuPy."""

import sys

from harness import SKIPPED
from judge import HERE, NO_CACHE, PASS, SKIP, Outcome, difference, fail, has_module

MODES = ("native", "default", "async")


def same_runs(harness, command, extra=None):
    """Runs one command natively and under the shim, all at once. A capture that fails natively must
    fail alike: the same output and the same exit status, whatever it is."""
    jobs = [dict(command=command, mode=mode, python=True, extra=extra, timeout=100)
            for mode in MODES]
    runs = harness.run_all(jobs)
    native = runs[0]
    if native.status == SKIPPED:
        return Outcome(SKIP, native.out.strip())
    if native.status is None or not native.out.strip():
        return fail(f"natively: {native.why()}", *runs)
    for run in runs[1:]:
        if run.status != native.status:
            return fail(f"{run.mode}: {run.why()}; natively: {native.why()}", *runs)
        if run.out != native.out:
            return fail(f"{run.mode}: other output: {difference(native.out, run.out)}", *runs)
        if run.status == 0 and run.stats is None:
            return fail(f"{run.mode}: no cachealloc-stats line", *runs)
    return Outcome(PASS, " | ".join(native.out.strip().splitlines())[:300], runs=runs)


def captured(module, script, *arguments, extra=None):
    def case(harness):
        if not has_module(harness, module):
            return Outcome(SKIP, f"no module {module}")
        return same_runs(harness, [sys.executable, HERE / script, *arguments], extra)
    return case


def all_captures(harness):
    """All programs at once where there are processors for it, since each starts slowly."""
    cases = {"PyTorch": captured("torch", "torch_graph.py"),
             "PyTorch, cache off": captured("torch", "torch_graph.py", extra=NO_CACHE),
             "CuPy": captured("cupy", "cupy_graph.py"),
             "CuPy, pool off": captured("cupy", "cupy_graph.py", "--no-pool")}
    outcomes = harness.all_at_once([lambda case=case: case(harness) for case in cases.values()])
    lines = [f"{name}: {outcome.verdict} {outcome.note}"
             for name, outcome in zip(cases, outcomes)]
    verdicts = {outcome.verdict for outcome in outcomes}
    runs = [run for outcome in outcomes for run in outcome.runs]
    if "FAIL" in verdicts:
        bad = "; ".join(line for line in lines if "FAIL" in line)
        return Outcome("FAIL", bad, runs=runs, lines=lines)
    return Outcome(SKIP if verdicts == {SKIP} else PASS, lines=lines)
