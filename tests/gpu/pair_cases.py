"""Cases for two real GPUs in one machine; with fewer each is skipped by name. All others use the
first GPU alone.
"""

import re
import sys

from harness import MODES, SKIPPED, gpu_count
from judge import HERE, NO_CACHE, PASS, SKIP, Outcome, difference, fail, has_module, under_shim
from order_cases import NO_SLACK

TIGHT = {"default": NO_SLACK, "async": f"free:async,{NO_SLACK}"}


def on_both(harness, command, confs, python=False, extra=None, timeout=60):
    """Natively and under the shim with each of the settings, with all GPUs: the same output and
    status 0."""
    if gpu_count() < 2:
        return Outcome(SKIP, "fewer than two GPUs")
    keep = dict(timeout=timeout, python=python, extra=extra, all_gpus=True)
    native = harness.run(command, "native", **keep)
    if native.status == SKIPPED:
        return Outcome(SKIP, native.out.strip())
    if not native.ok:
        return fail(f"natively: {native.why()} {native.out[-300:]}", native)
    runs, times = [native], [f"native {native.seconds:.1f} s"]
    for mode, conf in confs.items():
        run = harness.run(command, mode, conf=conf, **keep)
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
    outcome = on_both(harness, [program], TIGHT)
    if outcome.verdict == PASS:
        off = harness.run([program], "async", conf=TIGHT["async"], testing=True, all_gpus=True,
                          extra={"CACHEALLOC_TEST_DISABLE": "finished_level"})
        seen = re.findall(r"(\d+) bytes wrong", off.out)[-1:]
        outcome.note += f"; without the level `finished`: {''.join(seen) or '?'} bytes wrong"
    return outcome


def all_reduce(harness):
    if not has_module(harness, "torch"):
        return Outcome(SKIP, "no module torch")
    confs = {mode: MODES[mode] for mode in ("default", "async")}
    command = [sys.executable, HERE / "torch_allreduce.py"]
    return on_both(harness, command, confs, True, NO_CACHE, 100)
