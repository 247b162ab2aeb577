"""Cases for two real GPUs in one machine; with fewer each is skipped by name. All others use the
first GPU alone.
"""

import sys

from harness import SKIPPED, gpu_count
from judge import HERE, NO_CACHE, PASS, SKIP, Outcome, difference, fail, has_module, under_shim

MODES = ("default", "async")


def on_both(harness, command, python=False, extra=None, timeout=60):
    """Natively and under the shim, with all GPUs: the same output and status 0."""
    if gpu_count() < 2:
        return Outcome(SKIP, "fewer than two GPUs")
    keep = dict(timeout=timeout, python=python, extra=extra, all_gpus=True)
    native = harness.run(command, "native", **keep)
    if native.status == SKIPPED:
        return Outcome(SKIP, native.out.strip())
    if not native.ok:
        return fail(f"natively: {native.why()} {native.out[-300:]}", native)
    runs, times = [native], [f"native {native.seconds:.1f} s"]
    for mode in MODES:
        run = harness.run(command, mode, **keep)
        runs.append(run)
        wrong = under_shim(run)
        if wrong:
            return fail(f"{mode}: {wrong} {run.out[-300:]}", *runs)
        if run.out != native.out:
            return fail(f"{mode}: other output: {difference(native.out, run.out)}", *runs)
        times.append(f"{mode} {run.seconds:.1f} s, level {run.stats.get('level')}")
    last = native.out.strip().splitlines()[-1:]
    return Outcome(PASS, "; ".join(last + times), runs=runs)


def two_devices(harness):
    program = harness.binary("gpu/two_devices")
    if program is None:
        return Outcome(SKIP, "not built: gpu/two_devices")
    return on_both(harness, [program])


def all_reduce(harness):
    if not has_module(harness, "torch"):
        return Outcome(SKIP, "no module torch")
    return on_both(harness, [sys.executable, HERE / "torch_allreduce.py"], True, NO_CACHE, 100)
