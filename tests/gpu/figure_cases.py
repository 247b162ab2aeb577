"""Figures of whole programs: a training loop natively with PyTorch's cache off, under the shim, and
with PyTorch's own allocator, taking turns; a CuPy loop likewise. The results must be the same bit for
bit, and no free may have waited natively under the shim's default.
"""

import sys
import time

from harness import median, table
from judge import HERE, NO_CACHE, PASS, SKIP, Outcome, fail, has_module
from turn_taking import TurnError, take_turns

# name -> (mode, further environment); "own" keeps the program's own allocator.
TORCH_WAYS = {
    "native, cache off": ("native", NO_CACHE),
    "shim, default, cache off": ("default", NO_CACHE),
    "shim, free:async, cache off": ("async", NO_CACHE),
    "PyTorch's own allocator": ("native", {}),
}
CUPY_WAYS = {
    "native, pool off": ("native", []),
    "shim, default, pool off": ("default", []),
    "shim, free:async, pool off": ("async", []),
    "CuPy's own pool": ("native", ["--own-pool"]),
}


def count_text(stats):
    """What a pool did, from its statistics line."""
    if not stats:
        return "-"
    keys = ("level", "native_waits", "host_waits", "barriers", "fences", "driver_alloc_calls")
    return " ".join(f"{key} {stats[key]}" for key in keys if key in stats)


def figures(title, unit, answers, runs, own):
    """(lines of a table, what is wrong or None): medians of the rounds after the warm-up."""
    rows = []
    of_own = [median(one["ms"]) for one in answers[own][1:]]
    for name, rounds in answers.items():
        times = [median(one["ms"]) for one in rounds[1:]]
        ratios = [a / b for a, b in zip(times, of_own)]
        rows.append([name, f"{median(times):.2f} ({min(times):.2f}..{max(times):.2f})",
                     f"{median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})",
                     count_text(runs[name].stats)])
    lines = [f"{title}, {unit}; median (lowest..highest) of {len(of_own)} interleaved rounds",
             *table(rows, ["way", unit, "of its own", "under the shim"]).splitlines()]
    wrong = []
    first = next(iter(answers))
    expected = [one["losses"] for one in answers[first]]
    for name, rounds in answers.items():
        if [one["losses"] for one in rounds] == expected:
            continue
        if runs[name].mode == "native":  # its own affair: another allocator, other addresses
            lines.append(f"{name}: other results than {first}")
        else:
            wrong.append(f"{name}: other results than {first}")
    for name in answers:
        if not runs[name].ok:
            wrong.append(f"{name}: {runs[name].why()}")
        stats = runs[name].stats
        if runs[name].mode != "native" and stats is None:
            wrong.append(f"{name}: no cachealloc-stats line")
        if runs[name].mode == "default" and stats and stats.get("native_waits", 0) > 0:
            wrong.append(f"{name}: {stats['native_waits']} frees waited natively")
    return lines, "; ".join(wrong) or None


def turns(harness, title, unit, ways, own, steps, rounds=5, limit=100, further=None):
    """Starts all ways, lets them take turns and judges the figures; `further` gives more lines from
    the answers and the finished runs."""
    end = time.monotonic() + harness.time_left(limit)
    children = [harness.start(name, command, mode, python=True, extra=extra)
                for name, (command, mode, extra) in ways.items()]
    problem, answers = None, {}
    try:
        answers = take_turns(children, steps, rounds, end)
    except TurnError as error:
        problem = str(error)
    runs = {child.name: harness.stop(child, 30 if problem is None else 1) for child in children}
    if problem:
        ends = "; ".join(f"{name}: {run.why()}" for name, run in runs.items() if not run.ok)
        return fail(f"{title}: {problem}; {ends}", *runs.values())
    lines, wrong = figures(title, unit, answers, runs, own)
    lines += further(answers, runs) if further else []
    if wrong:
        return Outcome("FAIL", f"{title}: {wrong}", runs=list(runs.values()), lines=lines)
    return Outcome(PASS, lines=lines)


def torch_figures(model, title, steps, *arguments):
    def case(harness):
        if not has_module(harness, "torch"):
            return Outcome(SKIP, "no module torch")
        if model == "resnet" and not has_module(harness, "torchvision"):
            return Outcome(SKIP, "no module torchvision")
        command = [sys.executable, HERE / "torch_train.py", "--model", model, *arguments]
        ways = {name: (command, mode, extra) for name, (mode, extra) in TORCH_WAYS.items()}
        return turns(harness, title, "ms/step", ways, "PyTorch's own allocator", steps)
    return case


def cupy_figures(harness):
    if not has_module(harness, "cupy"):
        return Outcome(SKIP, "no module cupy")
    command = [sys.executable, HERE / "cupy_loop.py", "--turns"]
    ways = {name: ([*command, *more], mode, {}) for name, (mode, more) in CUPY_WAYS.items()}
    return turns(harness, "CuPy, element-wise", "ms", ways, "CuPy's own pool", 100)
