"""How much memory programs of changing shapes hold: PyTorch with its cache off under the shim, classic
and expandable, beside PyTorch's own allocator, taking turns; and what `cachealloc replay` makes of
their recordings.
"""

import re
import sys

from figure_cases import turns
from harness import table
from judge import HERE, NO_CACHE, PASS, SKIP, Outcome, has_module
from record_cases import EXPANDABLE, Wrong, judged, recorded, tool_json

CLASSIC_CONF, EXPANDABLE_CONF = "expandable_segments:False", "expandable_segments:True"
TIGHT = ",slack_mb:0,slack_percent:0"
NATIVE, OWN = "native, cache off", "PyTorch's own"
OWN_EXPANDABLE = "PyTorch's own, expandable"
# name -> settings of the shim
SHIM_WAYS = {
    "shim, classic": CLASSIC_CONF,
    "shim, expandable": EXPANDABLE_CONF,
    "shim, expandable, no slack": EXPANDABLE_CONF + TIGHT,
}
# Of `cachealloc replay`.
POLICIES = ("pytorch", "pytorch-expandable", "greedy")
# Counters that say what the driver was asked for, whatever else a statistics line holds.
CALLS = re.compile(r"driver_(alloc|free)_calls|segment_(allocs|frees)|stitch|alias|remap|piece|"
                   r"unmap|_maps|map_calls|growth")


def shim_environment(conf):
    return {**NO_CACHE, "CACHEALLOC_CONF": f"record:off,stats:True,{conf}"}


def mib(value):
    return f"{value / (1 << 20):.0f}"


def per_step(longer, shorter, steps):
    """What the counters of CALLS gained a step between two runs of the same program."""
    gains = {key: (value - (shorter or {}).get(key, 0)) / steps for key, value in longer.items()
             if CALLS.search(key) and not key.endswith("_ns")}
    return ", ".join(f"{key} {gain:.2f}" for key, gain in gains.items() if gain) or "none"


def own_per_step(first, last, steps):
    """The same of PyTorch's own statistics. What it maps page by page it does not count as calls."""
    calls = sum(last[key] - first[key] for key in ("device_allocs", "device_frees")) / steps
    mapped = (last["mapped"] - first["mapped"]) / steps
    return (f"device calls {calls:.2f}, {mib(mapped)} MiB newly held, "
            f"{last['retries']} flushes in all")


def memory_lines(answers, runs, short, steps):
    """A table of peaks, and what the driver was asked for in each step after the warm-up."""
    rows, lines = [], []
    for name, rounds in answers.items():
        own, stats = rounds[-1]["own"], runs[name].stats
        later = steps * (len(rounds) - 1)
        if own:
            live, reserved = own["live"], own["reserved"]
            calls = own_per_step(rounds[0]["own"], own, later)
        elif stats:
            live, reserved = stats["allocated_bytes_peak"], stats["reserved_bytes_peak"]
            calls = per_step(stats, short.get(name), later)
        else:
            continue
        rows.append([name, mib(live), mib(reserved), f"{reserved / max(1, live):.3f}"])
        lines.append(f"{name}, a step after the warm-up: {calls}")
    return [*table(rows, ["way", "peak live MiB", "held", "ratio"]).splitlines(), *lines]


def ragged_figures(model, title, steps, limit):
    @judged
    def case(harness):
        if not has_module(harness, "torch"):
            return Outcome(SKIP, "no module torch")
        script = [sys.executable, HERE / "torch_ragged.py", "--model", model]
        ways = {NATIVE: (script, "native", NO_CACHE), OWN: (script, "native", {}),
                OWN_EXPANDABLE: (script, "native", EXPANDABLE)}
        ways.update({name: (script, "default", shim_environment(conf))
                     for name, conf in SHIM_WAYS.items()})
        # What a run of the warm-up alone asked the driver for is subtracted.
        begun = harness.run_all([
            dict(command=[*script, "--steps", steps], mode="default", python=True, timeout=100,
                 extra=shim_environment(conf)) for conf in SHIM_WAYS.values()])
        short = {name: run.stats for name, run in zip(SHIM_WAYS, begun)}
        return turns(harness, title, "ms/step", ways, OWN, steps, limit=limit,
                     further=lambda answers, runs: memory_lines(answers, runs, short, steps))
    return case


def replayed(harness, trace, *arguments):
    """What `cachealloc replay` says of a recording."""
    return tool_json(harness, "replay", trace, *arguments)["replays"][0]


def prediction(name, one, own):
    """A line of `replay`'s figures; `own` is what the process itself counted."""
    steady = one.get("steady", {})
    return (f"{name}: replay {mib(one['peak_reserved'])} MiB of {mib(one['peak_live'])} live "
            f"({one['ratio']:.3f}), {steady.get('driver_calls_per_step', 0):.2f} driver calls and "
            f"{steady.get('remaps_per_step', 0):.2f} remaps a step; on the device "
            f"{mib(own['reserved_bytes_peak'])} MiB of {mib(own['allocated_bytes_peak'])} "
            f"({own['reserved_bytes_peak'] / max(1, own['allocated_bytes_peak']):.3f})")


@judged
def replay_figures(harness):
    """Recordings of the ragged programs, and what replay makes of them beside the process itself."""
    if not has_module(harness, "torch"):
        return Outcome(SKIP, "no module torch")
    steps = 40
    jobs = {(model, name): conf for model in ("gpt", "resnet") for name, conf in SHIM_WAYS.items()}

    def one(model, conf, trace):
        return recorded(harness, [sys.executable, HERE / "torch_ragged.py", "--model", model,
                                  "--steps", steps], trace, extra=NO_CACHE,
                        conf=f"stats:True,stacks:off,ring_mb:64,{conf}")

    traces = {key: harness.scratch(f"ragged{number}.trace") for number, key in enumerate(jobs)}
    runs = dict(zip(jobs, harness.all_at_once(
        [lambda key=key, conf=conf: one(key[0], conf, traces[key]) for key, conf in jobs.items()])))
    lines = []
    for key, conf in jobs.items():
        if runs[key].stats is None:
            raise Wrong(f"{key}: no cachealloc-stats line", runs[key])
        found = replayed(harness, traces[key], "--steps", str(steps))
        lines.append(prediction(", ".join(key), found, runs[key].stats))
    for model in ("gpt", "resnet"):
        trace = traces[model, next(iter(SHIM_WAYS))]
        ratios = [f"{policy} {replayed(harness, trace, '--policy', policy)['ratio']:.3f}"
                  for policy in POLICIES]
        lines.append(f"{model}, replayed by other rules: {', '.join(ratios)}")
    return Outcome(PASS, lines=lines)
