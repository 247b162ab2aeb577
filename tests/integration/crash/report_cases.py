"""A planted leak and a run that ends out of memory, as on a GPU (tests/gpu/record_cases.py judges both):
the report names functions, lines and sizes, and its peak is that of the events.
"""

import json
import subprocess
import sys
from pathlib import Path

GPU = Path(__file__).resolve().parents[2] / "gpu"
sys.path.append(str(GPU))
from record_cases import missing_places, numbers  # noqa: E402


def expected_of(result):
    return [json.loads(line) for line in result.out.splitlines()]


def need(case):
    if not case.args.leak_app or case.args.tool is None:
        case.skip("no leak_app or no tool")


def peak_agrees(case, path):
    """The report's peak is what a few independent lines find in the file."""
    done = subprocess.run([sys.executable, GPU / "record_peak.py", path], capture_output=True,
                          text=True, check=True)
    report = case.tool_json("report", path)
    case.expect(int(done.stdout) in set(numbers(report)),
                f"a peak of {done.stdout.strip()} bytes in the report: {json.dumps(report)[:800]}")
    return report


def planted_leak(case):
    """Exactly the three allocations that leak_app forgets."""
    need(case)
    wanted = case.folder / "leak.trace"
    result = case.run([case.args.leak_app], CACHEALLOC_TRACE=wanted)
    case.expect(result.status == 0 and not result.said, f"{result.status} {result.err}")
    leaks = case.tool_json("leaks", wanted)
    missing = missing_places(leaks, expected_of(result))
    case.expect(missing is None, f"{missing}: {json.dumps(leaks)[:1500]}")
    case.expect(leaks["allocations"] == 3, f"3 leaks, not {leaks['allocations']}")
    peak_agrees(case, wanted)


def ends_out_of_memory(case):
    """The file is kept unasked; its report names the request, its place, and who holds the memory."""
    need(case)
    result = case.run([case.args.leak_app, "--fill"])
    case.expect(result.status == 3, f"status 3, not {result.status}: {result.err}")
    files = case.files(case.traces)
    case.expect(len(files) == 1, f"one file kept, not {files}")
    report = peak_agrees(case, case.traces / files[0])
    missing = missing_places(report, expected_of(result))
    case.expect(missing is None, f"{missing}: {json.dumps(report)[:1500]}")


REPORTS = {"planted_leak": planted_leak, "ends_out_of_memory": ends_out_of_memory}
