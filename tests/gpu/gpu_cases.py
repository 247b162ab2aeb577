#!/usr/bin/env python3
"""The tests that need a GPU: one table of cases, run one at a time by ctest or by gpu_check.

    gpu_cases.py --list [SECTION]            names of the cases
    gpu_cases.py --build DIR NAME...         runs cases; 0 passed, 1 failed, 77 skipped

A case compares what an unmodified program prints natively and under the shim, or expects a
directed failure when a safety rule is switched off (the testing build of the shim).
"""

import argparse
import sys
import traceback
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
from cupti_cases import pinned_memory, submits_seen  # noqa: E402
from expandable_cases import (dependent_pieces, ipc, oversize, stitched,  # noqa: E402
                              stitched_off, torch_compiled, torch_memory, torch_oversize)
from fragmentation_cases import ragged_figures, replay_figures  # noqa: E402
from figure_cases import cupy_figures, torch_figures  # noqa: E402
from graph_cases import all_captures  # noqa: E402
from harness import SKIPPED, Harness, find_gpu  # noqa: E402
from judge import (FAIL, NO_CACHE, PASS, SKIP, Outcome, app_case, churn_case, fail,  # noqa: E402
                   python_case, under_shim)
from order_cases import (dependent_launch, late_reader, late_writers,  # noqa: E402
                         late_writers_native, late_writers_off, producers, replay)
from pair_cases import all_reduce, two_devices  # noqa: E402
from record_cases import (record_cupy, record_expandable, record_leak,  # noqa: E402
                          record_memory_viz, record_oom, record_torch)
from record_figures import record_figures  # noqa: E402


def contract(harness):
    """The contract's sentences that native CUDA answers too: same answers under the shim."""
    program = harness.binary(*CONTRACT)
    if program is None:
        return fail("not built: " + " or ".join(CONTRACT))
    native = harness.run([program], "native", timeout=120)
    if not native.ok:
        return fail(f"natively: {native.why()} {native.out.strip()[-200:]}", native)
    for mode in ("default", "async"):
        run = harness.run([program], mode, timeout=120)
        wrong = under_shim(run)
        if wrong:
            return fail(f"{mode}: {wrong} {run.out.strip()[-200:]}", run)
    return Outcome(PASS)


# Arguments that keep a program short here; all others run without any.
APP_ARGUMENTS = {name: ("--items", 100, "--rounds", 1) for name in ("pipeline", "pipeline_static")}
CONTRACT = ("contract/contract", "apps/contract", "tests/contract/contract", "bin/contract")

# name -> (section, title in the real-input table or None, function of a Harness)
CASES = {
    "late_reader_fences_off": ("tests", None, late_reader("late_reader", True)),
    "late_reader": ("tests", None, late_reader("late_reader", False)),
    "late_reader_static": ("tests", None, late_reader("late_reader_static", False)),
    "contract": ("tests", None, contract),
    "churn_static": ("apps", "nvcc, static cudart (churn)", churn_case("churn_static")),
    "churn": ("apps", "nvcc, shared cudart (churn)", churn_case("churn")),
    "driver_app": ("apps", "-lcuda (driver_app)", app_case("driver_app", counted=True)),
    "cupy": ("python", "CuPy, pool off", python_case("cupy", "cupy_loop.py")),
    "torch_no_cache": ("python", "PyTorch training, cache off",
                       python_case("torch", "torch_gpt.py", extra=NO_CACHE)),
    "torch_own": ("python", "PyTorch training, its own cache",
                  python_case("torch", "torch_gpt.py")),
    "late_writers_rules_off": ("order", None, late_writers_off),
    "late_writers_native": ("order", None, late_writers_native),
    "late_writers": ("order", None, late_writers("")),
    "late_writers_async": ("order", None, late_writers("free:async,")),
    "dependent_launch": ("order", None, dependent_launch),
    "replay": ("order", None, replay),
    "producers": ("order", None, producers),
    "submits": ("cupti", None, submits_seen),
    "pinned": ("cupti", None, pinned_memory),
    "captures": ("capture", None, all_captures),
    "gpt_figures": ("figures", None, torch_figures("gpt", "GPT training", 10)),
    "resnet_figures": ("figures", None, torch_figures(
        "resnet", "ResNet-18 training, pinned DataLoader", 20)),
    "cupy_figures": ("figures", None, cupy_figures),
    "ragged_gpt_figures": ("fragmentation", None, ragged_figures(
        "gpt", "GPT training, 64 to 511 tokens", 20, 150)),
    "ragged_resnet_figures": ("fragmentation", None, ragged_figures(
        "resnet", "ResNet-50 training, 128 to 320 pixels", 12, 200)),
    "replay_figures": ("fragmentation", None, replay_figures),
    "stitched_off": ("expandable", None, stitched_off),
    "stitched": ("expandable", None, stitched),
    "dependent_pieces": ("expandable", None, dependent_pieces),
    "oversize": ("expandable", None, oversize),
    "ipc": ("expandable", None, ipc),
    "torch_memory": ("expandable", None, torch_memory),
    "torch_oversize": ("expandable", None, torch_oversize),
    "torch_compiled": ("expandable", None, torch_compiled),
    "record_leak": ("record", None, record_leak),
    "record_oom": ("record", None, record_oom),
    "record_torch": ("record", None, record_torch),
    "record_memory_viz": ("record", None, record_memory_viz),
    "record_figures": ("record", None, record_figures),
    "record_cupy": ("record", None, record_cupy),
    "record_expandable": ("record", None, record_expandable),
    "two_devices": ("pair", None, two_devices),
    "all_reduce": ("pair", None, all_reduce),
}
SECTIONS = ("tests", "apps", "order", "cupti", "capture", "figures", "fragmentation", "expandable",
            "record", "pair", "python")


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
    except Exception as error:  # one broken case must not take the others' results along
        where = traceback.extract_tb(error.__traceback__)[-1]
        return fail(f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})")


def main():
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--build", default="build", type=Path)
    options.add_argument("--list", action="store_true")
    options.add_argument("--covered", action="store_true",
                         help="programs of tests/apps that the cases name themselves")
    options.add_argument("--seconds", type=int, default=60,
                         help="how long the producer/consumer streams run (60)")
    options.add_argument("--conf", default="", help="settings for every run under the shim")
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
    harness = Harness(args.build, seconds=args.seconds)
    harness.conf = args.conf
    verdicts = set()
    for name in args.names:
        outcome = run_case(harness, name)
        verdicts.add(outcome.verdict)
        print(f"{outcome.verdict} {name}{': ' + outcome.note if outcome.note else ''}")
        for line in outcome.lines:
            print("  " + line)
        if outcome.verdict == FAIL:
            for run in outcome.runs:
                print(f"--- [{run.mode}] {' '.join(run.command)}")
                print(run.out[-4000:] + "\n" + run.err[-4000:])
    if FAIL in verdicts:
        return 1
    return SKIPPED if verdicts == {SKIP} else 0


if __name__ == "__main__":
    sys.exit(main())
