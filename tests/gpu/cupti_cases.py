"""Cases that watch the driver through CUPTI (cupti_watch.cpp): did any launch, copy or memset go by
that the shim's table did not see, and who asks for device addresses of pinned memory.
"""

import glob
import os
import sys
from pathlib import Path

from harness import tagged
from judge import HERE, NO_CACHE, PASS, SKIP, Outcome, fail, has_module


def find_cupti():
    """Path of a libcupti of CUDA 13, PyTorch's own first, or None."""
    roots = [Path(p) / "nvidia" / "*" / "lib" for p in sys.path if p]
    roots += [Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "extras/CUPTI/lib64",
              Path("/usr/local/cuda/lib64"), Path("/usr/local/cuda/targets/x86_64-linux/lib")]
    for root in roots:
        for name in ("libcupti.so.13", "libcupti.so"):
            found = sorted(glob.glob(str(root / name)))
            if found:
                return str(Path(found[0]).resolve())
    return None


def watch_job(harness, command, python=False, extra=None):
    """Arguments of Harness.run for a command that is watched, under the testing shim."""
    watch = harness.build / "lib" / "libcupti_watch.so"
    settings = {"LD_PRELOAD": f"{harness.shim(testing=True)}:{watch}",
                "CUPTI_WATCH": find_cupti() or "", "CUDA_INJECTION64_PATH": str(watch),
                "CACHEALLOC_TEST_COUNT": "1", **(extra or {})}
    return dict(command=command, mode="default", testing=True, python=python, extra=settings,
                timeout=100)


def judge_counts(name, run):
    """(what is wrong or None, one line of counts) of a watched run."""
    seen = tagged(run.err, "cupti-watch")
    if not run.ok:
        return run.why(), ""
    if seen is None:
        return "nothing was watched: " + run.err.strip()[-200:], ""
    submits = seen["submits"]
    if not submits:
        return "CUPTI saw no submission at all", ""
    if seen["table_names"] == 0:
        return "this build of the shim does not count", ""
    missed = [f"{call} {there} of which {max(ours, 0)} seen"
              for call, (there, ours) in submits.items() if ours < there]
    total = sum(there for there, _ in submits.values())
    line = f"{name}: {total} submissions of {len(submits)} kinds"
    extra = [f"{call} {ours}>{there}" for call, (there, ours) in submits.items() if ours > there]
    if extra:
        line += f" (the table counted more: {', '.join(extra[:4])})"
    kinds = ", ".join(f"{call} {there}" for call, (there, _) in sorted(submits.items()))
    return (f"went by unseen: {', '.join(missed)}" if missed else None), f"{line}: {kinds}"


def submits_seen(harness):
    """Every submission that CUPTI sees went through the table: small programs, PyTorch, CuPy."""
    if find_cupti() is None:
        return Outcome(SKIP, "no libcupti")
    jobs = {}
    for program in ("submits", "submits_ptds", "submits_static"):
        path = harness.binary(f"gpu/{program}")
        if path is None:
            return fail(f"not built: gpu/{program}")
        jobs[program] = watch_job(harness, [path])
    python = sys.executable
    if has_module(harness, "torch"):
        jobs["PyTorch"] = watch_job(harness, [python, HERE / "torch_submits.py"], True)
        jobs["PyTorch, cache off"] = watch_job(
            harness, [python, HERE / "torch_submits.py", "--no-graph"], True, NO_CACHE)
    if has_module(harness, "cupy"):
        jobs["CuPy"] = watch_job(harness, [python, HERE / "cupy_loop.py"], True)
    runs = dict(zip(jobs, harness.run_all(jobs.values())))
    lines, wrong = [], []
    for name, run in runs.items():
        problem, line = judge_counts(name, run)
        if problem:
            wrong.append(f"{name}: {problem}")
        if line:
            lines.append(line)
    if wrong:
        return Outcome(fail("").verdict, "; ".join(wrong), runs=list(runs.values()), lines=lines)
    return Outcome(PASS, f"{len(runs)} programs, nothing went by unseen", lines=lines)


FLAGS = {1: "portable", 2: "mapped", 4: "write-combined"}


def flag_text(flags):
    return "+".join(text for bit, text in FLAGS.items() if flags & bit) or "-"


def pinned_memory(harness):
    """Which pinned memory exists in a training run, and of which the device address is asked for."""
    if find_cupti() is None:
        return Outcome(SKIP, "no libcupti")
    if not has_module(harness, "torch"):
        return Outcome(SKIP, "no module torch")
    command = [sys.executable, HERE / "torch_train.py", "--model", "resnet", "--steps", "6"]
    names = ("cache off", "its own cache")
    runs = harness.run_all([watch_job(harness, command, True, extra) for extra in (NO_CACHE, {})])
    lines = []
    for name, run in zip(names, runs):
        seen = tagged(run.err, "cupti-watch")
        if not run.ok or seen is None:
            return fail(f"{name}: {run.why()}", run)
        for key in ("device_pointers", "pinned"):
            what = "asked for the device address of" if key == "device_pointers" else "allocated"
            for library, call, size, flags, count in seen[key]:
                lines.append(f"{name}: {library} {what} {size} B ({flag_text(flags)}), {count} "
                             f"times, {call}")
            if not seen[key]:
                lines.append(f"{name}: nobody {what} pinned memory")
    return Outcome(PASS, f"{len(lines)} rows", lines=lines)
