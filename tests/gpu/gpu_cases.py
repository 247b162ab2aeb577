#!/usr/bin/env python3
"""The tests that need a GPU: one table of cases, run one at a time by ctest or by gpu_check.

    gpu_cases.py --list [SECTION]            names of the cases
    gpu_cases.py --build DIR NAME...         runs cases; 0 passed, 1 failed, 77 skipped

A case compares what an unmodified program prints natively and under the shim, or expects a
directed failure when a safety rule is switched off (the testing build of the shim).
"""

import argparse
import difflib
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import SKIPPED, Harness, driver_calls, find_gpu, tagged  # noqa: E402

HERE = Path(__file__).resolve().parent
PASS, FAIL, SKIP = "PASS", "FAIL", "SKIP"


@dataclass
class Outcome:
    """How a case ended; `row` is its line of the real-input table, for the cases that have one."""

    verdict: str
    note: str = ""
    row: dict | None = None
    runs: list = field(default_factory=list)


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


def compare(harness, command, modes=("async", "sync"), timeout=60, counted=False, python=False,
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


def late_reader(binary, switched_off):
    """With fences off, the kernel that reads late must see foreign bytes; with them on, none."""
    def case(harness):
        program = harness.app(binary)
        if program is None:
            return fail(f"not built: apps/{binary}")
        if not switched_off:
            return compare(harness, [program])
        # Freed blocks settle at once then, and the newest is handed out first.
        run = harness.run([program], "async", testing=True,
                          extra={"CACHEALLOC_TEST_DISABLE": "fence"})
        counts = re.search(r"(\d+) cases, (\d+) bytes corrupted", run.out)
        if not counts or run.stats is None:
            return fail(f"no counts: {run.why()}", run)
        if int(counts[2]) == 0:
            return fail("every byte was kept although fences were off: this proves nothing", run)
        # The testing build with its rules on must pass, or the failure above means nothing.
        control = harness.run([program], "async", testing=True)
        if not control.ok:
            return fail(f"the testing shim fails with fences on: {control.why()}", control)
        return Outcome(PASS, f"fences off: {counts[0]}")
    return case


def late_writers(switched_off):
    """Every way of overwriting a freed block while a kernel still reads it (late_writers.cu)."""
    def case(harness):
        program = harness.binary("gpu/late_writers")
        if program is None:
            return fail("not built: gpu/late_writers")
        # No slack, so that the pool must hand the freed block out again instead of growing.
        conf = "free:async,stats:True,slack_mb:0,slack_percent:0"
        if not switched_off:
            native = harness.run([program], "native")
            run = harness.run([program], "async", conf=conf)
            wrong = under_shim(run)
            if not native.ok or wrong:
                return fail(f"natively: {native.why()}; under the shim: {wrong}", native, run)
            if run.out != native.out:
                return fail(difference(native.out, run.out), native, run)
        else:
            run = harness.run([program], "async", conf=conf, testing=True,
                              extra={"CACHEALLOC_TEST_DISABLE": "fence"})
        counts = tagged(run.err, "gpu-late")
        if counts is None or run.stats is None:
            return fail(f"no counts: {run.why()}", run)
        note = "{cases} cases, {reused} reused the address, {corrupted} corrupted".format(**counts)
        if counts["reused"] < 0.9 * counts["cases"]:
            return fail(f"too few cases reused the freed address: {note}", run)
        # Without order every way of writing must be seen to corrupt, or the case shows nothing.
        if switched_off and counts["corrupted"] < 0.9 * counts["cases"]:
            return fail(f"fences off, and still: {note}", run)
        return Outcome(PASS, note)
    return case


def contract(harness):
    """The contract's sentences that native CUDA answers too: same answers under the shim."""
    program = harness.binary(*CONTRACT)
    if program is None:
        return fail("not built: " + " or ".join(CONTRACT))
    native = harness.run([program], "native", timeout=120)
    if not native.ok:
        return fail(f"natively: {native.why()} {native.out.strip()[-200:]}", native)
    for mode in ("sync", "async"):
        run = harness.run([program], mode, timeout=120)
        wrong = under_shim(run)
        if wrong:
            return fail(f"{mode}: {wrong} {run.out.strip()[-200:]}", run)
    return Outcome(PASS)


def python_case(module, script, *arguments, **kwargs):
    """A Python script; skipped by name where its library is missing."""
    def case(harness):
        probe = harness.run([sys.executable, "-c", f"import importlib.util as u, sys;"
                             f"sys.exit(u.find_spec('{module}') is None)"], python=True)
        if not probe.ok:
            return Outcome(SKIP, f"no module {module}")
        return compare(harness, [sys.executable, HERE / script, *arguments], modes=("async",),
                       timeout=120, counted=True, python=True, **kwargs)
    return case


# Arguments that keep a program short here; all others run without any.
APP_ARGUMENTS = {name: ("--items", 100, "--rounds", 1) for name in ("pipeline", "pipeline_static")}
CONTRACT = ("contract/contract", "apps/contract", "tests/contract/contract", "bin/contract")
NO_CACHE = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}

# name -> (section, title in the real-input table or None, function of a Harness)
CASES = {
    "late_reader_fences_off": ("tests", None, late_reader("late_reader", True)),
    "late_reader": ("tests", None, late_reader("late_reader", False)),
    "late_reader_static": ("tests", None, late_reader("late_reader_static", False)),
    "late_writers_fences_off": ("tests", None, late_writers(True)),
    "late_writers": ("tests", None, late_writers(False)),
    "contract": ("tests", None, contract),
    "churn_static": ("apps", "nvcc, static cudart (churn)", churn_case("churn_static")),
    "churn": ("apps", "nvcc, shared cudart (churn)", churn_case("churn")),
    "driver_app": ("apps", "-lcuda (driver_app)", app_case("driver_app", counted=True)),
    "cupy": ("python", "CuPy, pool off", python_case("cupy", "cupy_loop.py")),
    "torch_no_cache": ("python", "PyTorch training, cache off",
                       python_case("torch", "torch_gpt.py", extra=NO_CACHE)),
    "torch_own": ("python", "PyTorch training, its own cache",
                  python_case("torch", "torch_gpt.py")),
}
SECTIONS = ("tests", "apps", "python")


# Programs of tests/apps that the table above already runs.
COVERED = {"churn", "churn_static", "driver_app", "late_reader", "late_reader_static"}


def section_cases(harness, section):
    """Names of a section's cases; every further program of tests/apps is one: `app:<program>`."""
    names = [name for name, case in CASES.items() if case[0] == section]
    if section == "apps":
        names += [f"app:{name}" for name in harness.apps() if name not in COVERED]
    return names


def title_of(name):
    """The case's title in the real-input table, or None."""
    return CASES[name][1] if name in CASES else None


def run_case(harness, name):
    try:
        if name.startswith("app:"):
            return app_case(name.removeprefix("app:"), *APP_ARGUMENTS.get(name[4:], ()))(harness)
        return CASES[name][2](harness)
    except OSError as error:
        return fail(str(error))


def main():
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--build", default="build", type=Path)
    options.add_argument("--list", action="store_true")
    options.add_argument("--covered", action="store_true",
                         help="programs of tests/apps that the cases name themselves")
    options.add_argument("names", nargs="*")
    args = options.parse_args()
    if args.covered:
        print("\n".join(sorted(COVERED)))
        return 0
    if args.list:
        for name, (section, _, _) in CASES.items():
            if not args.names or section in args.names:
                print(name)
        return 0
    unknown = [n for n in args.names if n not in CASES and not n.startswith("app:")]
    if unknown or not args.names:
        options.error(f"no such case: {unknown[0]}" if unknown else "name a case, or --list")
    if find_gpu() is None:
        for name in args.names:
            print(f"SKIP {name}: no GPU")
        return SKIPPED
    harness = Harness(args.build)
    verdicts = set()
    for name in args.names:
        outcome = run_case(harness, name)
        verdicts.add(outcome.verdict)
        print(f"{outcome.verdict} {name}{': ' + outcome.note if outcome.note else ''}")
        if outcome.verdict == FAIL:
            for run in outcome.runs:
                print(f"--- [{run.mode}] {' '.join(run.command)}")
                print(run.out[-4000:] + "\n" + run.err[-4000:])
    if FAIL in verdicts:
        return 1
    return SKIPPED if verdicts == {SKIP} else 0


if __name__ == "__main__":
    sys.exit(main())
