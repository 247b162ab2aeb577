"""What recording costs a training step, beside PyTorch's own history in the same rounds."""

import sys

from figure_cases import turns
from harness import median
from judge import HERE, NO_CACHE, PASS, SKIP, Outcome, has_module
from record_cases import Wrong, counters_text, judged, tool_json

OWN = "PyTorch's own allocator"
OFF, PLAIN, FULL = "shim, record:off", "shim, recording, stacks:off", "shim, recording with stacks"
PYTHON, ALL = "own + history, python stacks", "own + history, all stacks"
# way -> what it is compared with
BASES = {PLAIN: OFF, FULL: OFF, PYTHON: OWN, ALL: OWN}


def costs(answers, _runs):
    """Lines that say what each way adds to its base: the median of the rounds' own ratios."""
    lines = []
    for way, base in BASES.items():
        ratios = [median(one["ms"]) / median(other["ms"])
                  for one, other in zip(answers[way][1:], answers[base][1:])]
        percent = [100 * (ratio - 1) for ratio in ratios]
        lines.append(f"{way}: {median(percent):+.1f} % ({min(percent):+.1f} .. "
                     f"{max(percent):+.1f}) of {base}")
    return lines


@judged
def record_figures(harness):
    if not has_module(harness, "torch"):
        return Outcome(SKIP, "no module torch")
    script = [sys.executable, HERE / "torch_train.py", "--model", "gpt"]
    trace = harness.scratch("figures.trace")

    def shim(options, **more):
        return script, "default", {**NO_CACHE, "CACHEALLOC_CONF": options + "stats:True", **more}

    ways = {
        OFF: shim("record:off,"),
        PLAIN: shim("stacks:off,"),
        FULL: shim("", CACHEALLOC_TRACE=str(trace)),
        OWN: (script, "native", {}),
        PYTHON: ([*script, "--history", "python"], "native", {}),
        ALL: ([*script, "--history", "all"], "native", {}),
    }
    outcome = turns(harness, "GPT training, recorded", "ms/step", ways, OWN, 10, further=costs)
    if outcome.verdict == PASS:
        if not trace.is_file():
            raise Wrong("no recording")
        outcome.lines.append(f"{FULL}: {counters_text(tool_json(harness, 'check', trace))}")
    return outcome
