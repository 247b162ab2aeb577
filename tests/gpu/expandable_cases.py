"""Cases of growable memory (expandable_segments:True): blocks whose memory is mapped twice, requests
that only pieces can serve, export to another process, PyTorch operations that look at memory itself.
"""

import json
import re
import sys

from fragmentation_cases import CLASSIC_CONF, EXPANDABLE_CONF, TIGHT
from harness import SKIPPED, tagged
from judge import FAIL, HERE, NO_CACHE, PASS, SKIP, Outcome, difference, fail, has_module, under_shim
from record_cases import EXPANDABLE

STATS = "record:off,stats:True,"
MIXES = 5
# name -> settings; every one must answer as natively
CONFS = {"classic": STATS + CLASSIC_CONF, "expandable": STATS + EXPANDABLE_CONF,
         "expandable, free:async": f"{STATS}free:async,{EXPANDABLE_CONF}"}
TIGHT_CONFS = {"expandable": STATS + EXPANDABLE_CONF + TIGHT,
               "expandable, free:async": f"{STATS}free:async,{EXPANDABLE_CONF}{TIGHT}"}


def stitch_text(stats):
    keys = ("growths", "stitches_made", "stitches_used", "remaps", "reserved_bytes_peak")
    return ", ".join(f"{key} {stats[key]}" for key in keys if stats.get(key))


def same_output(harness, command, confs, python=False, extra=None, timeout=100):
    """Natively and under the shim with each of the settings, one after another (free memory is looked
    at): the same output, status 0."""
    keep = dict(python=python, timeout=timeout, extra=extra)
    native = harness.run(command, "native", **keep)
    if native.status == SKIPPED:
        return Outcome(SKIP, native.out.strip())
    if not native.ok:
        return Outcome(SKIP, f"natively: {native.why()}", runs=[native])
    lines = [" | ".join(native.out.strip().splitlines())[-200:]]
    for name, conf in confs.items():
        run = harness.run(command, "default", conf=conf, **keep)
        wrong = under_shim(run)
        if wrong or run.out != native.out:
            return fail(f"{name}: {wrong or difference(native.out, run.out)}", native, run)
        lines.append(f"{name}: {stitch_text(run.stats)}")
    return Outcome(PASS, lines=lines)


def aliases(runs):
    """{direction: counts} of runs of `stitched`, added up."""
    sums = {}
    said = "\n".join(run.err for run in runs)
    for direction, text in re.findall(r"^gpu-stitched-\d-(\w+): (\{.*\})$", said, re.MULTILINE):
        into = sums.setdefault(direction, {})
        for key, value in json.loads(text).items():
            into[key] = into.get(key, 0) + value
    return sums


def alias_text(name, sums):
    return f"{name}: " + "; ".join(
        f"{direction}: {one['cases']} cases, {one['aliased']} in the same memory elsewhere, "
        f"{one['corrupted']} corrupted" for direction, one in sums.items())


def stitched(harness):
    """Late readers through one mapping, writers through the other: no byte may differ."""
    program = harness.binary("gpu/stitched")
    if program is None:
        return fail("not built: gpu/stitched")
    native = harness.run([program, "--mix", 1], "native", timeout=100)
    if not native.ok:
        return fail(f"natively: {native.why()} {native.out[-300:]}", native)
    lines = []
    for name, conf in TIGHT_CONFS.items():
        for tooth in (4096, 16384):
            # Each mix alone: a pool that one mix filled would hide what the next one shows.
            runs = [harness.run([program, "--peek", "--tooth-kib", tooth, "--mix", mix + 1],
                                "default", conf=conf, timeout=60) for mix in range(MIXES)]
            sums = aliases(runs)
            lines.append(alias_text(f"{name}, {tooth >> 10} MiB", sums))
            for mix, run in enumerate(runs):
                wrong = under_shim(run)
                if wrong:
                    return Outcome(FAIL, f"{name}, mix {mix + 1}: {wrong} {run.out[-600:]}",
                                   runs=[run], lines=lines)
            waits = sum(run.stats.get("native_waits", 0) for run in runs)
            if waits > 0:  # it would hide what comes after it
                return Outcome(FAIL, f"{name}: {waits} frees waited natively", lines=lines)
            if any(one["aliased"] == 0 for one in aliases(runs[:1]).values()):
                return Outcome(FAIL, f"{name}: no memory was mapped twice", runs=runs[:1],
                               lines=lines)
    return Outcome(PASS, lines=lines)


def stitched_off(harness):
    """Without order the same program must be seen to corrupt, through both mappings."""
    program = harness.binary("gpu/stitched")
    if program is None:
        return fail("not built: gpu/stitched")
    conf = TIGHT_CONFS["expandable, free:async"]
    off = {"CACHEALLOC_TEST_DISABLE": "fence,stream_event,finished_only"}
    run = harness.run([program, "--peek", "--mix", 1], "default", conf=conf, testing=True,
                      extra=off, timeout=100)
    sums = aliases([run])
    lines = [f"{direction}: {one['unordered_corrupted']} corrupted of {one['unordered']} that "
             "nothing orders" for direction, one in sums.items()]
    if len(sums) < 2 or any(one["unordered"] == 0 or
                            one["unordered_corrupted"] < 0.9 * one["unordered"]
                            for one in sums.values()):
        return Outcome(FAIL, f"rules off, and still: {'; '.join(lines) or run.why()}", runs=[run],
                       lines=lines)
    return Outcome(PASS, lines=lines)


def dependent_pieces(harness):
    """A kernel that may start before its predecessor ends, on pieces that came back as one block."""
    program = harness.binary("gpu/dependent_launch")
    if program is None:
        return fail("not built: gpu/dependent_launch")
    outcome = same_output(harness, [program], TIGHT_CONFS)
    if outcome.verdict == PASS:
        off = harness.run([program], "default", conf=TIGHT_CONFS["expandable, free:async"],
                          testing=True, extra={"CACHEALLOC_TEST_DISABLE": "programmatic"})
        outcome.lines += [f"rule off: {line}" for line in off.out.strip().splitlines()]
        if not re.search(r"pieces: \d+ cases, [1-9]", off.out):
            return fail(f"rule off, and no byte was wrong in pieces: {off.why()}", off)
    return outcome


def oversize(harness):
    """2 GiB from 8 GiB that are cached in smaller parts, on a full device."""
    program = harness.binary("gpu/oversize")
    if program is None:
        return fail("not built: gpu/oversize")
    lines, problems, runs = [], [], []
    confs = {"native": None, **CONFS}
    for name, conf in confs.items():
        run = harness.run([program], "native" if conf is None else "default", conf=conf, timeout=100)
        runs.append(run)
        answers = {kind: tagged(run.err, f"gpu-oversize-{kind}") for kind in ("whole", "held")}
        if not run.ok or None in answers.values():
            return Outcome(FAIL, f"{name}: {run.why()} {run.out[-200:]}", runs=[run], lines=lines)
        lines.append(f"{name}: " + "; ".join(
            f"{kind} {'served' if one['served'] else 'out of memory'} ({one['ms']:.1f} ms)"
            for kind, one in answers.items()))
        # Classic segments that a small live block holds cannot be put together.
        must = ("whole",) if name == "classic" else ("whole", "held")
        problems += [f"{name}: {kind} not served" for kind in must if not answers[kind]["served"]]
    if problems:
        return Outcome(FAIL, "; ".join(problems), runs=runs, lines=lines)
    return Outcome(PASS, lines=lines)


def torch_oversize(harness):
    """The same through PyTorch: its own allocator, and the shim in its place."""
    if not has_module(harness, "torch"):
        return Outcome(SKIP, "no module torch")
    ways = {"PyTorch's own": (None, {}), "PyTorch's own, expandable": (None, EXPANDABLE),
            "shim, classic": (CONFS["classic"], NO_CACHE),
            "shim, expandable": (CONFS["expandable"], NO_CACHE)}
    lines, problems, runs = [], [], []
    for name, (conf, extra) in ways.items():  # one after another: each fills the device
        run = harness.run([sys.executable, HERE / "torch_oversize.py"],
                          "native" if conf is None else "default", conf=conf, python=True,
                          extra=extra, timeout=100)
        runs.append(run)
        if run.status == SKIPPED:
            return Outcome(SKIP, run.out.strip())
        if not run.ok:
            return Outcome(FAIL, f"{name}: {run.why()} {run.out[-300:]}", runs=[run], lines=lines)
        for kind, answer in json.loads(run.out).items():
            own = (f" with {answer['cached_mib']} MiB cached, {answer['flushes']} flushes, "
                   f"{answer['device_frees']} cudaFree" if conf is None else "")
            served = "served" if answer["served"] else "out of memory"
            lines.append(f"{name}, {kind}: {served}{own}")
            if conf and not answer["served"] and (name, kind) != ("shim, classic", "held"):
                problems.append(lines[-1])
    if problems:
        return Outcome(FAIL, "; ".join(problems), runs=runs, lines=lines)
    return Outcome(PASS, lines=lines)


def ipc(harness):
    """Memory for another process: a clear error for what came too early, then as natively."""
    program = harness.binary("gpu/ipc")
    if program is None:
        return fail("not built: gpu/ipc")
    native = harness.run([program], "native")
    if native.status == SKIPPED:
        return Outcome(SKIP, native.out.strip())
    if not native.ok:
        return fail(f"natively: {native.why()}", native)
    lines = []
    for name, conf in CONFS.items():
        run = harness.run([program], "default", conf=conf)
        answer = tagged(run.err, "gpu-ipc")
        if not run.ok or answer is None:
            return fail(f"{name}: {run.why()} {run.out.strip()}", native, run)
        said = [line for line in run.err.splitlines()
                if line.startswith("cachealloc:") and "expandable_segments" in line]
        lines.append(f"{name}: early {answer['early']}, later {answer['later']}")
        lines += [f"    {line[:160]}" for line in said]
        if answer["early"] != "cudaSuccess" and not said:
            return Outcome(FAIL, f"{name}: refused without naming the option", runs=[run],
                           lines=lines)
    return Outcome(PASS, lines=lines)


def torch_memory(harness):
    if not has_module(harness, "torch"):
        return Outcome(SKIP, "no module torch")
    return same_output(harness, [sys.executable, HERE / "torch_vmm.py"],
                       {**CONFS, **{"expandable, no slack": TIGHT_CONFS["expandable"]}}, True, NO_CACHE)


def torch_compiled(harness):
    if not has_module(harness, "torch") or not has_module(harness, "triton"):
        return Outcome(SKIP, "no module torch or triton")
    confs = {"expandable": CONFS["expandable"]}
    return same_output(harness, [sys.executable, HERE / "torch_vmm.py", "--compile"], confs, True,
                       {**NO_CACHE, "TORCHINDUCTOR_CACHE_DIR": str(harness.scratch("inductor"))})
