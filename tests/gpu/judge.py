"""How a case is judged: its outcome, and the comparison of a native run with runs under the shim.

Used by every module of cases. Only the Python standard library.
"""

import difflib
import sys
from dataclasses import dataclass, field
from pathlib import Path

from harness import SKIPPED, driver_calls

HERE = Path(__file__).resolve().parent
PASS, FAIL, SKIP = "PASS", "FAIL", "SKIP"
NO_CACHE = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}


@dataclass
class Outcome:
    """How a case ended. `row` is its line of the real-input table, for the cases that have one;
    `lines` is what it measured, for the summary."""

    verdict: str
    note: str = ""
    row: dict | None = None
    runs: list = field(default_factory=list)
    lines: list = field(default_factory=list)


def fail(note, *runs):
    return Outcome(FAIL, note, runs=list(runs))


def difference(expected, got):
    """The first lines that differ between two outputs."""
    lines = difflib.unified_diff(expected.splitlines(), got.splitlines(), "native", "shim",
                                 lineterm="", n=0)
    return " | ".join(list(lines)[2:8])[:400]


def under_shim(run):
    """None, or what is wrong with a run that claims to have been under the shim."""
    if not run.ok:
        return run.why()
    if run.stats is None:
        return "no cachealloc-stats line: the shim saw no CUDA call"
    return None


def compare(harness, command, modes=("default", "async"), timeout=60, counted=False, python=False,
            extra=None):
    """Native first, then each mode: exit status 0 and the same standard output, byte for byte."""
    native = harness.run(command, "native", timeout, python=python, extra=extra)
    if native.status == SKIPPED:
        return Outcome(SKIP, native.out.strip())
    if not native.ok:
        return fail(f"natively: {native.why()}", native)
    runs = {"native": native}
    for mode in (("counted",) if counted else ()) + tuple(modes):
        run = runs[mode] = harness.run(command, mode, timeout, python=python, extra=extra)
        wrong = under_shim(run)
        if wrong:
            return fail(f"{mode}: {wrong}", native, run)
        if run.out != native.out:
            return fail(f"{mode}: other output: {difference(native.out, run.out)}", native, run)
    return Outcome(PASS, runs=list(runs.values()), row=real_input_row(runs) if counted else None)


def real_input_row(runs):
    """What the real-input table says of a program: calls that reached the driver, and time."""
    shim = runs["async"]

    def time_of(run):
        if run.times:
            return f"{run.times['median']:.2f} {run.times['unit']}"
        return f"{run.seconds:.2f} s"

    calls = driver_calls(shim)
    return {"same": "yes",
            "native_calls": driver_calls(runs["counted"]),
            "shim_calls": calls,
            "native_time": time_of(runs["native"]),
            "shim_time": time_of(shim),
            "allocations": shim.stats.get("allocations"),
            "stats": shim.stats,
            "reserved_peak": shim.stats.get("reserved_bytes_peak"),
            "allocated_peak": shim.stats.get("allocated_bytes_peak"),
            "native_times": runs["native"].times, "shim_times": shim.times}


def app_case(name, *arguments, counted=False, **kwargs):
    """A program of tests/apps, native against both free modes. `counted` also gives its row."""
    def case(harness):
        program = harness.app(name)
        if program is None:
            return fail(f"not built: apps/{name}")
        return compare(harness, [program, *arguments], counted=counted, **kwargs)
    return case


def churn_case(name):
    return app_case(name, "--iterations", 1000, "--json", counted=True)


def has_module(harness, module):
    """Whether this machine's Python has a module."""
    probe = harness.run([sys.executable, "-c", f"import importlib.util as u, sys;"
                         f"sys.exit(u.find_spec('{module}') is None)"], python=True)
    return probe.ok


def python_case(module, script, *arguments, **kwargs):
    """A Python script; skipped by name where its library is missing."""
    def case(harness):
        if not has_module(harness, module):
            return Outcome(SKIP, f"no module {module}")
        return compare(harness, [sys.executable, HERE / script, *arguments], modes=("async",),
                       timeout=120, counted=True, python=True, **kwargs)
    return case
