"""What the benchmark drivers share: figures with their spread, and what a program printed."""

import json
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu"))
from harness import median  # noqa: E402


class BenchError(Exception):
    """A benchmark process failed; the message says which and how."""


def spread(values, form):
    return f"{form.format(median(values))} ({form.format(min(values))}..{form.format(max(values))})"


def json_lines(run):
    if not run.ok:
        raise BenchError(f"{Path(run.command[0]).name} [{run.mode}]: {run.why()}")
    return [json.loads(line) for line in run.out.splitlines() if line.startswith("{")]


def size_name(size):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


COUNTS = ("fences", "barriers", "host_waits", "native_waits", "thread_hits", "shared_hits",
          "limbo_hits", "tree_hits", "segment_allocs")


def level_of(run):
    """How careful the pool was, from the statistics line of a run under the shim."""
    stats = run.stats or {}
    level = f"level {stats['level']}; " if "level" in stats else ""
    return level + ", ".join(f"{key} {stats[key]}" for key in COUNTS if key in stats)
