"""Cases that show order: late readers, dependent launches, producer/consumer streams, a replayed
trace. Each has a twin with a safety rule switched off, which must go wrong.
"""

import gzip
import re
import tempfile
from pathlib import Path

from harness import REPOSITORY, tagged
from judge import FAIL, PASS, SKIP, Outcome, compare, difference, fail, under_shim

# No slack, so that the pool must hand the freed block out again instead of growing.
NO_SLACK = "stats:True,slack_mb:0,slack_percent:0"
MIXES = 5


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


def late_runs(harness, mode, mixes=MIXES, **kwargs):
    """One run of late_writers for each mix of calls: a pool that one mix filled would hide what the
    next one shows. Returns (runs, counts); counts is None where a run has none."""
    program = harness.binary("gpu/late_writers")
    if program is None:
        raise OSError("not built: gpu/late_writers")
    runs = [harness.run([program, "--mix", mix + 1], mode, **kwargs) for mix in range(mixes)]
    counts = [tagged(run.err, f"gpu-late-{mix}") for mix, run in enumerate(runs)]
    return runs, (None if None in counts else counts)


def late_writers(conf):
    """Every way of overwriting a freed block while a kernel still reads it (late_writers.cu)."""
    def case(harness):
        runs, counts = late_runs(harness, "default", conf=f"{conf}{NO_SLACK}")
        lines = [f"{one['mix']}: {one['cases']} cases, {one['reused']} got the freed address, "
                 f"{one['corrupted']} corrupted" for one in counts or ()]
        for mix, run in enumerate(runs):
            wrong = under_shim(run)
            if wrong:
                return Outcome(FAIL, f"mix {mix + 1}: {wrong} {run.out[:600]}", runs=[run],
                               lines=lines)
        # A case whose address did not come back shows nothing.
        if counts is None or any(one["reused"] < 0.8 * one["cases"] for one in counts[:1]):
            return Outcome(FAIL, "too few cases got the freed address", runs=runs, lines=lines)
        # A free that waits for the reader hides what comes after it.
        waits = sum(run.stats.get("native_waits", 0) for run in runs)
        if waits > 0:
            return Outcome(FAIL, f"{waits} frees waited natively", runs=runs, lines=lines)
        return Outcome(PASS, lines=lines)
    return case


def late_writers_native(harness):
    """The program itself is right: natively nothing is ever corrupted. The plain calls alone: a
    mix whose native free does not wait takes minutes until an address is back."""
    runs, _ = late_runs(harness, "native", mixes=1)
    for mix, run in enumerate(runs):
        if not run.ok:
            return fail(f"mix {mix + 1}: {run.why()} {run.out[:600]}", run)
    ends = [run.out.strip().splitlines()[-1] for run in runs]
    left_out = sorted(set(re.findall(r"left out: (.*)", "\n".join(run.err for run in runs))))
    return Outcome(PASS, "; ".join(ends + left_out))


def late_writers_off(harness):
    """Without order, every way of writing must be seen to corrupt, or late_writers shows nothing."""
    off = {"CACHEALLOC_TEST_DISABLE": "fence,stream_event,finished_only"}
    runs, counts = late_runs(harness, "async", conf=f"free:async,{NO_SLACK}", testing=True,
                             extra=off)
    if counts is None or any(run.stats is None for run in runs):
        return fail("no counts: " + "; ".join(run.why() for run in runs), *runs)
    lines = [f"{one['mix']}: {one['unordered_corrupted']} corrupted of {one['unordered']} that "
             "nothing orders" for one in counts]
    for mix, one in enumerate(counts):
        if mix > 0 and one["unordered"] == 0:
            continue  # the pool does not hand such a block out at once
        if one["unordered"] == 0 or one["unordered_corrupted"] < 0.9 * one["unordered"]:
            return Outcome(FAIL, f"rules off, and still: {lines[mix]}", runs=runs, lines=lines)
    return Outcome(PASS, lines=lines)


def dependent_launch(harness):
    """A kernel that may start before its predecessor ends, after a free and an allocation."""
    program = harness.binary("gpu/dependent_launch")
    if program is None:
        return fail("not built: gpu/dependent_launch")
    native = harness.run([program], "native")
    notes = []
    for stream in ("blocking", "non-blocking"):
        found = re.findall(rf'gpu-dependent: .*"stream": "{stream}", (.*)\}}', native.err)
        notes.append(f"{stream} stream: {found[0] if found else '?'}")
    note = "natively " + "; ".join(notes)
    if not native.ok:
        return fail(f"natively: {native.why()} {native.out[-200:]}", native)
    runs = [native]
    for mode, conf in (("default", NO_SLACK), ("async", f"free:async,{NO_SLACK}")):
        run = harness.run([program], mode, conf=conf)
        runs.append(run)
        wrong = under_shim(run)
        if wrong or run.out != native.out:
            return fail(f"{mode}: {wrong or difference(native.out, run.out)}; {note}", *runs)
    off = harness.run([program], "async", conf=f"free:async,{NO_SLACK}", testing=True,
                      extra={"CACHEALLOC_TEST_DISABLE": "programmatic"})
    seen = re.findall(r"(\d+) bytes wrong", off.out)
    return Outcome(PASS, f"{note}; bytes wrong with the rule off: {' '.join(seen) or '?'}")


def producers(harness):
    """Four producer/consumer streams with verified content, for harness.seconds in all."""
    program = harness.binary("gpu/producers")
    if program is None:
        return fail("not built: gpu/producers")
    half = max(1, harness.seconds // 2)
    notes, runs = [], []
    for mode, conf, seconds in (("native", None, 2), ("default", NO_SLACK, half),
                                ("async", f"free:async,{NO_SLACK}", half)):
        run = harness.run([program, "--seconds", seconds], mode, timeout=seconds + 30, conf=conf)
        runs.append(run)
        counts = tagged(run.err, "gpu-producers")
        if not run.ok or counts is None:
            return fail(f"{mode}: {run.why()} {run.out.strip()}", run)
        notes.append("{mode}: {buffers} buffers ({stream_ordered} stream-ordered), {mib} MiB in "
                     "{seconds} s, {wrong} bytes wrong".format(mode=mode, **counts))
    off = harness.run([program, "--seconds", 2], "async", conf=f"free:async,{NO_SLACK}",
                      testing=True, extra={"CACHEALLOC_TEST_DISABLE": "fence"})
    counts = tagged(off.err, "gpu-producers")
    if counts is None or counts["wrong"] == 0:
        return fail(f"fences off, and no byte was wrong: {off.why()}", off)
    notes.append(f"fences off: {counts['wrong']} wrong")
    return Outcome(PASS, "; ".join(notes), runs=runs)


def trace_file(harness, folder):
    """The recorded four-stream trace as plain CSV, or None where this machine has none."""
    name = "four_streams.csv.gz"
    for path in (harness.build / "traces" / name, REPOSITORY / "shared" / "traces" / name,
                 REPOSITORY.parent / "shared" / "traces" / name):
        if path.is_file():
            plain = Path(folder) / "four_streams.csv"
            plain.write_bytes(gzip.decompress(path.read_bytes()))
            return plain
    return None


def replay(harness):
    """The recorded trace, with kernels that check their inputs."""
    program = harness.binary("gpu/replay_trace")
    if program is None:
        return fail("not built: gpu/replay_trace")
    with tempfile.TemporaryDirectory(prefix="cachealloc-trace-") as folder:
        trace = trace_file(harness, folder)
        if trace is None:
            return Outcome(SKIP, "no traces/four_streams.csv.gz here")
        notes = []
        for calls in ((), ("--async",)):
            command = [program, trace, *calls]
            native = harness.run(command, "native")
            if not native.ok:
                return fail(f"natively: {native.why()} {native.out.strip()}", native)
            times = [f"native {native.times.get('median', 0):.0f}"]
            for mode, conf in (("default", NO_SLACK), ("async", f"free:async,{NO_SLACK}")):
                run = harness.run(command, mode, conf=conf)
                wrong = under_shim(run)
                if wrong or run.out != native.out:
                    return fail(f"{mode}: {wrong or difference(native.out, run.out)}", native, run)
                times.append(f"{mode} {run.times.get('median', 0):.0f}")
            notes.append(f"{native.out.strip()}; ms: {', '.join(times)}")
        off = harness.run([program, trace], "async", conf=f"free:async,{NO_SLACK}", testing=True,
                          extra={"CACHEALLOC_TEST_DISABLE": "fence"})
        if not re.search(r" [1-9]\d* bytes wrong", off.out):
            return fail(f"fences off, and no byte was wrong: {off.why()}", off)
        return Outcome(PASS, " | ".join(notes))
