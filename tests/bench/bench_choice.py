"""What to do with a freed block that may still be in use: order its reuse on the device (barrier),
wait on the host, or grow. Throughput and memory of each alone, beside what the pool chooses."""

import time

from bench_tools import BenchError, json_lines, spread
from harness import median, table

MIB = 1 << 20
BUDGET_S = 60  # of all runs together; the first round is always completed

SHORT = ["--copies", "--kernel-us", 20, "--items", 200]
LONG = ["--copies", "--kernel-us", 1000, "--items", 80]
TINY = ["--kernel-us", 4, "--items", 4000, "--bytes", 65536]


def point(name, streams, live, kernel):
    return name, [*kernel, "--streams", streams, "--live", live]


POINTS = (
    point("short kernel, 1 stream, 1 block", 1, 1, SHORT),
    point("short, 2 streams, 1 block", 2, 1, SHORT),
    point("short, 4 streams, 1 block", 4, 1, SHORT),
    point("short, 8 streams, 1 block", 8, 1, SHORT),
    point("short, 4 streams, 4 blocks", 4, 4, SHORT),
    point("short, 4 streams, 64 blocks", 4, 64, SHORT),
    point("long kernel, 4 streams, 1 block", 4, 1, LONG),
    point("long, 8 streams, 1 block", 8, 1, LONG),
    point("long, 4 streams, 16 blocks", 4, 16, LONG),
    point("launch-bound, 2 streams, 1 block", 2, 1, TINY),
    point("launch-bound, 2 streams, 8 blocks", 2, 8, TINY),
)
SLACK_POINTS = ("short, 4 streams, 1 block", "short, 4 streams, 64 blocks",
                "long kernel, 4 streams, 1 block", "launch-bound, 2 streams, 1 block")

# name, options, from how many younger fences on the host waits (None: as built)
BASE = "free:async,stats:True"
RULES = (("default", BASE, None),
         ("barriers", BASE + ",slack_mb:0,slack_percent:0", 1 << 40),
         ("host waits", BASE + ",slack_mb:0,slack_percent:0", 0),
         ("growth", BASE + ",slack_mb:1048576", 0))
SLACKS = (("slack 0", BASE + ",slack_mb:0,slack_percent:0", None),
          ("slack 12 %", BASE + ",slack_mb:0", None),
          ("slack 512 MiB", BASE + ",slack_mb:512", None))
PEER = "cudaMallocAsync"


class Samples:
    """Rates and peaks of memory (held, live) by point and way."""

    def __init__(self):
        self.rates, self.peaks = {}, {}

    def add(self, point_name, way, rate, peak):
        self.rates.setdefault((point_name, way), []).append(rate)
        self.peaks[point_name, way] = peak

    def extra(self, point_name, way):
        held, live = self.peaks[point_name, way]
        return max(0, held - live) / MIB

    def cell(self, point_name, way):
        """Items per second, of the peer's, and MiB held beyond the live peak."""
        rates = self.rates.get((point_name, way))
        if not rates:
            return "-"
        ratio = median(rates) / median(self.rates[point_name, PEER])
        return f"{median(rates):.0f} {ratio:.2f} +{self.extra(point_name, way):.0f}"

    def best(self, point_name, ways):
        """The rules within 5 % of the fastest, the one that holds least memory first."""
        fastest = max(median(self.rates[point_name, way]) for way in ways)
        good = [way for way in ways if median(self.rates[point_name, way]) >= 0.95 * fastest]
        return " = ".join(sorted(good, key=lambda way: self.extra(point_name, way)))


def one_run(harness, samples, name, arguments, way):
    """Runs one point one way; `way` is None for the peer, else a row of RULES or SLACKS."""
    program = harness.binary("bench/choice_bench")
    if way is None:
        run = harness.run([program, *arguments, "--way", "async"])
        line = json_lines(run)[0]
        samples.add(name, PEER, line["items_per_s"], (line["reserved_peak"], line["used_peak"]))
        return
    title, options, younger = way
    extra = {} if younger is None else {"CACHEALLOC_TEST_YOUNGER_FENCES": str(younger)}
    run = harness.run([program, *arguments], "async", conf=options, testing=True, extra=extra)
    line = json_lines(run)[0]
    if run.stats is None:
        raise BenchError(f"choice_bench [{title}]: no statistics")
    samples.add(name, title, line["items_per_s"],
                (run.stats["reserved_bytes_peak"], run.stats["allocated_bytes_peak"]))


def bench_choice(harness, rounds):
    samples = Samples()
    runs = [(name, arguments, way) for name, arguments in POINTS
            for way in (None, *RULES, *(SLACKS if name in SLACK_POINTS else ()))]
    end = time.monotonic() + BUDGET_S
    made = 0
    for index in range(rounds):
        for name, arguments, way in runs:
            if index > 0 and time.monotonic() > end:
                break
            one_run(harness, samples, name, arguments, way)
            made += 1
    ways = [title for title, _, _ in RULES]
    rows = [[name, f"{median(samples.rates[name, PEER]):.0f}",
             *(samples.cell(name, way) for way in ways), samples.best(name, ways[1:])]
            for name, _ in POINTS]
    slack_rows = [[name, *(samples.cell(name, way) for way in
                           ("slack 0", "slack 12 %", "default", "slack 512 MiB"))]
                  for name in SLACK_POINTS]
    spreads = [spread(samples.rates[name, "default"], "{:.0f}") for name, _ in POINTS]
    return [f"reuse, wait or grow: items/s, of {PEER}'s, MiB held beyond the live peak; level "
            f"fenced, free:async; medians, {made} interleaved processes of 3 passes "
            f"({made / len(runs):.1f} rounds)",
            table(rows, ["point", PEER, *ways, "rules within 5 % of the best, thriftiest first"]),
            "  default's rates, median (lowest..highest): " + "; ".join(spreads),
            "how much slack (default: the larger of 64 MiB and 12 % of the live peak):",
            table(slack_rows, ["point", "slack 0", "slack 12 %", "default", "slack 512 MiB"])]
