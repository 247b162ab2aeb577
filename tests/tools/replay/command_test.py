#!/usr/bin/env python3
"""`cachealloc replay` and `cachealloc tune` from outside.
Usage: command_test.py TOOL MAKE_RECORDING"""

import gzip
import json
import random
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOL, MAKE = sys.argv[1:3]
MIB = 1 << 20

COUNTS = {"all", "allocate", "release", "grow", "unmap", "remap", "drop", "pieces", "piece_maps",
          "single"}
RESULT = {"policy": str, "peak_live": int, "peak_live_rounded": int, "peak_reserved": int,
          "ratio": float, "driver_calls": dict, "steady": dict, "splits": int, "stitches": int,
          "affinity_hits": int, "seconds": float, "fits": bool}
REPLAY = {**RESULT, "file": str, "allocations": int, "events": int, "streams": int, "threads": int}
FRAGMENTATION = {"reserved", "live", "rounding", "hard", "soft", "stream", "largest_free"}


def tool(*arguments):
    return subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True, timeout=120)


def events(lines):
    """CSV text of ('a', id, bytes) and ('f', id)."""
    text = ["op,id,bytes,stream,us,site"]
    for time, line in enumerate(lines):
        text.append(f"a,{line[1]},{line[2]},0,{time},1" if line[0] == "a" else f"f,{line[1]},,,{time},")
    return "\n".join(text) + "\n"


def sawtooth():
    """Steps whose requests grow: a hole of one step is too small for the next one's. No segment that
    is cached ever fits but for those of large sizes that come again."""
    lines, number = [], 0
    dice = random.Random(5)
    for _ in range(30):
        step = []
        for _ in range(12):
            step.append(number)
            lines.append(("a", number, dice.randrange(2 * MIB, 30 * MIB)))
            number += 1
            if len(step) > 5:
                lines.append(("f", step.pop(dice.randrange(len(step)))))
        lines.extend(("f", one) for one in step)
    return events(lines)


class Commands(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def file(self, name, text):
        path = self.folder / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    def json_of(self, *arguments, code=0):
        done = tool(*arguments, "--json")
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads(done.stdout)

    def check_fields(self, one, wanted):
        for name, kind in wanted.items():
            self.assertIn(name, one)
            self.assertIsInstance(one[name], (int, float) if kind is float else kind, name)
        for counts in (one["driver_calls"], one["steady"]["driver_calls"]):
            self.assertEqual(set(counts), COUNTS)
        self.assertEqual(set(one["steady"]), {"steps", "driver_calls", "driver_calls_per_step",
                                              "remaps_per_step"})

    def test_a_replay_in_numbers(self):
        path = self.file("small.csv", events([("a", 0, 30 * MIB - 100), ("a", 1, 1000),
                                              ("a", 2, 50 * MIB)]))
        one, = self.json_of("replay", path)["replays"]
        self.check_fields(one, REPLAY)
        self.assertEqual(set(one["fragmentation"]), FRAGMENTATION)
        self.assertEqual(one["allocations"], 3)
        self.assertEqual(one["peak_live"], 80 * MIB + 900)
        self.assertEqual(one["peak_reserved"], 82 * MIB)
        self.assertAlmostEqual(one["ratio"], 82 * MIB / (80 * MIB + 900))
        self.assertIsNone(one["recorded"])
        self.assertNotIn("failure", one)
        said = tool("replay", path).stdout
        for text in ("82.0 MiB", "80.0 MiB", "1.025 of peak live", "3 allocations"):
            self.assertIn(text, said)

    def test_policies_and_options(self):
        path = self.file("two.csv.gz", events([("a", 0, 5 * MIB), ("a", 1, 25 * MIB)]))
        reserved = {}
        for policy in ("ours", "pytorch", "pytorch-expandable", "greedy"):
            one, = self.json_of("replay", path, "--policy", policy)["replays"]
            self.check_fields(one, REPLAY)
            reserved[policy] = one["peak_reserved"]
        self.assertEqual(reserved, {"ours": reserved["ours"], "pytorch": 46 * MIB,
                                    "pytorch-expandable": 40 * MIB, "greedy": 30 * MIB})
        one, = self.json_of("replay", path, "--conf", "roundup_power2_divisions:1,slack_mb:3")["replays"]
        self.assertIn("slack_mb:3", one["options"])

    def test_a_limit_is_a_finding(self):
        path = self.file("steps.csv", events([("a", 0, 30 * MIB), ("f", 0), ("a", 1, 40 * MIB),
                                              ("a", 2, 8 * MIB)]))
        self.assertIn("FITS 48.0 MiB", tool("replay", path, "--limit", "48M").stdout)
        one, = self.json_of("replay", path, "--limit", "44M", code=1)["replays"]
        self.assertFalse(one["fits"])
        failure = one["failure"]
        self.assertEqual((failure["event"], failure["bytes"], failure["live"], failure["reserved"]),
                         (3, 8 * MIB, 40 * MIB, 40 * MIB))
        done = tool("replay", path, "--limit", "44M")
        self.assertEqual(done.returncode, 1)
        self.assertIn("DOES NOT FIT 44.0 MiB: event 3 asks for 8.00 MiB", done.stdout)
        for policy in ("pytorch", "pytorch-expandable", "greedy"):
            self.assertEqual(tool("replay", path, "--policy", policy, "--limit", "20M").returncode, 1)

    def test_several_files_make_a_table(self):
        first = self.file("first.csv", events([("a", 0, 5 * MIB)]))
        second = self.file("second.csv", "id,lower,upper,size\n0,1,5,3000000\n")
        done = tool("replay", first, second)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 4)
        self.assertTrue(lines[2].startswith("first.csv") and lines[3].startswith("second.csv"))
        self.assertEqual(len(self.json_of("replay", first, second)["replays"]), 2)

    def test_recordings(self):
        example, churn = self.folder / "example.trace", self.folder / "churn.trace"
        subprocess.run([MAKE, "example", example], check=True)
        subprocess.run([MAKE, "churn", "20000", churn], check=True)
        one, = self.json_of("replay", example)["replays"]
        self.assertEqual(set(one["recorded"]), {"peak_reserved", "peak_live", "pool", "pools",
                                                "device", "whole"})
        report = json.loads(tool("report", example, "--json").stdout)
        self.assertEqual(one["recorded"]["peak_reserved"],
                         max(d["peak_reserved"]["bytes"] for d in report["devices"]))
        self.assertIn("on the device", tool("replay", churn).stdout)
        done = tool("replay", churn, "--pool", "9")
        self.assertEqual(done.returncode, 3)
        self.assertIn("--pool may be 0", done.stderr)

    def test_bad_input_is_one_line_and_status_3(self):
        good = events([("a", 0, 100)])
        for text in ("", "nonsense\n", good + "a,1,0,0,0,0\n", good + "f,1,,,0,\n", good + "a,0,5\n",
                     "id,lower,upper,size\n0,5,5,1\n"):
            for command in ("replay", "tune"):
                path = self.file("bad.csv", text)
                done = tool(command, path)
                self.assertEqual(done.returncode, 3, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertIn("allowed" if text != good + "f,1,,,0,\n" else "not live", done.stderr)
                self.assertIn(f"{path}:", done.stderr)
        cut = self.file("cut.csv.gz", good * 100)
        cut.write_bytes(cut.read_bytes()[:30])
        for path in (cut, self.folder, self.folder / "missing.csv"):
            done = tool("replay", path)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_wrong_command_lines_are_status_2(self):
        path = self.file("one.csv", events([("a", 0, 100)]))
        for line in (["replay", path, "--policy", "best"], ["replay", path, "--limit", "much"],
                     ["replay", path, "--steps", "0"], ["replay", path, "--conf", "nonsense:1"],
                     ["replay", path, "--pool", "300"], ["tune", path, "--max-driver-calls", "-1"],
                     ["tune", path, "--max-driver-calls", "nan"], ["tune", path, path],
                     ["replay", path, "--conf", "pool:False"], ["replay", path, "--conf", "off"],
                     ["replay", path, "--conf", "cache_mb:0", "--policy", "pytorch"]):
            done = tool(*line)
            self.assertEqual(done.returncode, 2, line)
            self.assertTrue(done.stderr, line)
            self.assertNotIn("->", done.stderr)
        self.assertIn("best is none of ours, pytorch, pytorch-expandable, greedy",
                      tool("replay", path, "--policy", "best").stderr)
        for command in ("replay", "tune"):
            said = tool(command, "--help").stdout
            self.assertIn(f"Example: cachealloc {command}", said)
            self.assertNotIn("{", said)

    def test_tune_finds_what_its_line_then_does(self):
        path = self.file("sawtooth.csv", sawtooth())
        found = self.json_of("tune", path, "--max-driver-calls", "3")
        labels = ["default", "tuned", "expandable", "expandable, tuned", "PyTorch's rules",
                  "PyTorch's rules, expandable", "best fit in one range", "best offline placement"]
        self.assertEqual([row["label"] for row in found["rows"]], labels)
        for row in found["rows"]:
            self.check_fields(row, RESULT)
        reserved = {row["label"]: row["peak_reserved"] for row in found["rows"]}
        within = {row["label"] for row in found["rows"]
                  if row["steady"]["driver_calls_per_step"] <= 3}
        for mode in ("", "expandable"):
            standard, tuned = mode or "default", f"{mode}, tuned" if mode else "tuned"
            self.assertTrue(reserved[tuned] <= reserved[standard] or standard not in within)
        self.assertLessEqual(reserved["best offline placement"], found["peak_reserved"])
        # The line does what it says.
        one, = self.json_of("replay", path, "--conf", found["conf"])["replays"]
        self.assertEqual(one["peak_reserved"], found["peak_reserved"])
        self.assertLessEqual(one["steady"]["driver_calls_per_step"], 3)
        self.assertEqual(tool("options", "--conf", found["conf"]).returncode, 0)
        said = tool("tune", path, "--max-driver-calls", "3").stdout
        if found["conf"]:
            self.assertIn(f"CACHEALLOC_CONF={found['conf']}\n", said)
        self.assertEqual("expandable_segments:True" in found["conf"], found["caveat"] is not None)
        for label in labels:
            self.assertIn(label, said)

    def test_a_bound_that_nothing_keeps_is_said(self):
        # Ever growing requests: a driver call for each, whatever the options.
        path = self.file("growing.csv", events([("a", i, (i + 30) * MIB) for i in range(60)]))
        found = self.json_of("tune", path, "--max-driver-calls", "0")
        self.assertFalse(found["within_bound"])
        said = tool("tune", path, "--max-driver-calls", "0").stdout
        self.assertIn("No options keep to 0", said)
        self.assertEqual(said.count("too many calls"), 4)

    def test_what_else_was_set_stays(self):
        path = self.folder / "set.trace"
        subprocess.run([MAKE, "fragmented", path], check=True)
        found = self.json_of("tune", path)
        self.assertTrue(found["conf"].startswith("free:async"), found["conf"])
        self.assertNotIn("slack_mb:7", found["rows"][0]["conf"])


unittest.main(argv=sys.argv[:1], verbosity=1)
