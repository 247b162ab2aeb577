#!/usr/bin/env python3
"""Exports of random recordings, read by independent readers.

Usage: export_test.py EXPORT_CASE CACHEALLOC

The seeds are fixed; CACHEALLOC_TEST_SEED=N draws others from N. Each failure names its case.
"""

import collections
import csv
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import memory_viz_rules

EXPORT_CASE = CACHEALLOC = ""
SEED = int(os.environ.get("CACHEALLOC_TEST_SEED", "1"))
KINDS = ("plain", "wrapped", "lossy", "nonsense", "damaged")
EVENTS = 1500
SPACE_ON_DEVICE = 0  # trace::AddressSpace::device


class Recording:
    """A recording of one kind, and its exports."""

    def __init__(self, folder, kind, seed, events=EVENTS):
        self.name = f"{kind}, seed {seed}"
        self.folder = folder
        self.file = folder / f"{kind}.{seed}.trace"
        made = subprocess.run([EXPORT_CASE, "make", kind, str(seed), str(events), self.file],
                              check=True, capture_output=True, text=True)
        self.expected = json.loads(made.stdout)

    def export(self, form, cost="end", device=-1, begin=0, end="inf"):
        output = self.folder / "output"
        output.unlink(missing_ok=True)
        done = subprocess.run([EXPORT_CASE, "export", form, cost, str(device), str(begin),
                               str(end), self.file, output], capture_output=True, text=True)
        assert done.returncode == 0, f"{form} of {self.name}: {done.returncode} {done.stderr}"
        return output.read_bytes()


def live_blocks(snapshot):
    return [(segment, block) for segment in snapshot["segments"] for block in segment["blocks"]
            if block["state"] == "active_allocated"]


def read_rmm(text):
    """As RMM's replay reads its log: what is live after each row."""
    live, most, now = {}, 0, 0
    for row in csv.DictReader(text.splitlines()):
        hours, minutes, seconds = row["Time"].split(":")
        assert 0 <= int(hours) < 24 and 0 <= int(minutes) < 60 and 0 <= float(seconds) < 60
        assert len(row["Time"]) == 15
        int(row["Thread"])
        int(row["Stream"], 16)
        size = int(row["Size"])
        if row["Action"] == "allocate":
            pointer = int(row["Pointer"], 16)
            assert pointer not in live
            live[pointer] = size
            now += size
            most = max(most, now)
        elif row["Action"] == "free":
            assert live.pop(int(row["Pointer"], 16)) == size
            now -= size
        else:
            assert row["Action"] == "allocate failure" and row["Pointer"] == "(nil)"
    return live, most


class Exports(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        folder = Path(cls.scratch.name)
        cls.recordings = [Recording(folder, kind, SEED * 100 + number)
                          for kind in KINDS for number in range(3)]

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def sound(self):
        """Recordings whose end is known exactly."""
        return [one for one in self.recordings if one.name.split(",")[0] in ("plain", "wrapped")]

    def plain(self):
        return [one for one in self.recordings if one.name.startswith("plain")]

    def test_memory_viz_keeps_every_rule(self):
        for recording in self.recordings:
            for device, begin, end in ((-1, 0, "inf"), (2, 0, "inf"), (0, 0.0004, 0.0009),
                                       (-1, 1000, "inf"), (-1, 0, 0)):
                with self.subTest(recording.name, device=device, begin=begin, end=end):
                    memory_viz_rules.check(
                        recording.export("memory_viz", device=device, begin=begin, end=end))

    def test_memory_viz_shows_what_is_live(self):
        for recording in self.sound():
            with self.subTest(recording.name):
                snapshot = memory_viz_rules.check(recording.export("memory_viz"))
                shown = collections.Counter(
                    (segment["device"], block["requested_size"], block["size"],
                     segment["user_metadata"]) for segment, block in live_blocks(snapshot))
                wanted = collections.Counter(
                    (one["device"], one["size"], one["bytes"], one["memory"])
                    for one in recording.expected["live"])
                self.assertEqual(shown, wanted)
                # Where memory has an address, it is there.
                addresses = {block["address"] for _, block in live_blocks(snapshot)}
                for one in recording.expected["live"]:
                    if one["space"] == SPACE_ON_DEVICE:
                        self.assertIn(one["address"], addresses)
                pending = {block["address"] for segment in snapshot["segments"]
                           for block in segment["blocks"]
                           if block["state"] == "active_pending_free"}
                if recording in self.plain():
                    self.assertEqual(pending, set(recording.expected["pending"]))
                self.check_segments(recording, snapshot)

    def check_segments(self, recording, snapshot):
        """All pool memory is shown, however it is cut: neighbours that grow are one segment."""
        def ranges(segments):
            joined = []
            for device, address, size in sorted(segments):
                if joined and joined[-1][0] == device and joined[-1][1] + joined[-1][2] == address:
                    joined[-1][2] += size
                else:
                    joined.append([device, address, size])
            return joined

        shown = [(segment["device"], segment["address"], segment["total_size"])
                 for segment in snapshot["segments"] if segment["user_metadata"] == "pooled"]
        self.assertEqual(ranges(shown), ranges(map(tuple, recording.expected["segments"])))

    def test_memory_viz_events(self):
        seen = collections.Counter()
        for recording in self.plain():
            snapshot = memory_viz_rules.check(recording.export("memory_viz"))
            self.assertEqual(len(snapshot["device_traces"]), 3)
            self.assertEqual(snapshot["device_traces"][1], [])
            metadata = set()
            for event in sum(snapshot["device_traces"], []):
                seen[event["action"]] += 1
                metadata.add(event.get("user_metadata", ""))
                self.assertEqual(event["time_us"] // 1_000_000, 1_700_000_000)
            self.assertTrue(any("managed memory, not the pool's: cuMemAllocManaged, thread "
                                "main (100)" in text for text in metadata))
            settings = snapshot["allocator_settings"]
            self.assertEqual(settings["PYTORCH_CUDA_ALLOC_CONF"], "max_split_size_mb:128")
            self.assertEqual(settings["max_split_size"], 128 << 20)
            self.assertEqual(settings["cachealloc"]["odd"], "?? text")
        for action in ("alloc", "free_requested", "free_completed", "segment_alloc",
                       "segment_free", "segment_map", "segment_unmap", "oom", "snapshot"):
            self.assertGreater(seen[action], 0, action)

    def test_memory_viz_frames(self):
        data = self.plain()[0].export("memory_viz")
        snapshot = memory_viz_rules.check(data)
        events = [event for event in snapshot["device_traces"][0] if event.get("frames")]
        distinct = {id(event["frames"]) for event in events}
        # One object for each stack: written once, then named.
        self.assertLessEqual(len(distinct), 40)
        self.assertGreater(len(events), 10 * len(distinct))
        names = {frame["name"] for event in events for frame in event["frames"]}
        self.assertIn("[truncated]", names)
        self.assertTrue(any(name.startswith("a.out+0x") for name in names))
        for event in events:
            for frame in event["frames"][:-1]:
                self.assertNotEqual(frame["name"], "[truncated]", "innermost first")

    def test_large_lists_go_in_batches(self):
        recording = Recording(Path(self.scratch.name), "plain", SEED * 100 + 50, 6000)
        snapshot = memory_viz_rules.check(recording.export("memory_viz"))
        self.assertGreater(len(snapshot["device_traces"][0]), 2000)

    def test_costs(self):
        for recording in self.plain():
            with self.subTest(recording.name):
                live = sum(one["size"] for one in recording.expected["live"])
                self.assertEqual(self.collapsed(recording, "end"), live)
                self.assertEqual(self.collapsed(recording, "peak"), recording.expected["peak"])
                self.assertGreater(self.collapsed(recording, "allocated"), live)
                # The parts of a window add up.
                parts = [self.collapsed(recording, "allocated", begin=begin, end=end)
                         for begin, end in ((0, 0.0005), (0.00050000001, "inf"))]
                self.assertEqual(sum(parts), self.collapsed(recording, "allocated"))
                self.assertTrue(all(parts))
                devices = [self.collapsed(recording, "end", device=device) for device in (0, 2)]
                self.assertEqual(sum(devices), live)

    def collapsed(self, recording, cost, **window):
        total = 0
        for line in recording.export("collapsed", cost, **window).decode().splitlines():
            stack, _, cost_of = line.rpartition(" ")
            self.assertTrue(stack)
            # Semicolons in names would look like calls.
            for part in stack.split(";"):
                self.assertRegex(part, r"^(\[no stack\]|\[truncated\]|(a\.out|libx:y\.so)\+0x.*)$")
            self.assertNotIn("[truncated]", stack.split(";")[1:], "the root comes first")
            total += int(cost_of)
        return total

    def test_speedscope(self):
        for recording in self.recordings:
            with self.subTest(recording.name):
                data = json.loads(recording.export("speedscope", "peak"))
                frames = data["shared"]["frames"]
                self.assertTrue(all(type(frame["name"]) is str for frame in frames))
                self.assertEqual(len({(f["name"], f.get("file"), f.get("line")) for f in frames}),
                                 len(frames))
                names = [(profile["name"], profile["unit"]) for profile in data["profiles"]]
                self.assertEqual(names, [("bytes", "bytes"), ("allocations", "none")])
                for profile in data["profiles"]:
                    self.assertEqual(profile["type"], "sampled")
                    self.assertEqual(len(profile["samples"]), len(profile["weights"]))
                    self.assertEqual(sum(profile["weights"]), profile["endValue"])
                    for sample in profile["samples"]:
                        self.assertTrue(sample)
                        self.assertTrue(all(0 <= frame < len(frames) for frame in sample))
                        self.assertNotIn("[truncated]", [frames[f]["name"] for f in sample[1:]])
                if recording in self.plain():
                    self.assertEqual(data["profiles"][0]["endValue"], recording.expected["peak"])

    def test_perfetto(self):
        for recording in self.recordings:
            with self.subTest(recording.name):
                data = json.loads(recording.export("perfetto"))
                last, most, marks = {}, 0, set()
                for event in data["traceEvents"]:
                    if event["ph"] == "C":
                        last[event["name"]] = event["args"]["bytes"]
                        most = max(most, last.get("device 0: live", 0))
                    elif event["ph"] == "i":
                        marks.add(event["name"])
                        self.assertIn(event["tid"], (0, 100, 101, 102))
                    else:
                        self.assertEqual(event["ph"], "M")
                if recording in self.plain():
                    for device in (0, 2):
                        live = sum(one["size"] for one in recording.expected["live"]
                                   if one["device"] == device)
                        self.assertEqual(last[f"device {device}: live"], live)
                        streams = sum(value for name, value in last.items()
                                      if name.startswith(f"device {device}: live of stream"))
                        self.assertEqual(streams, live)
                    self.assertIn("segment_alloc", marks)
                    self.assertIn("out_of_memory", marks)
                    self.assertEqual(self.collapsed(recording, "peak", device=0), most)

    def test_csv(self):
        for recording in self.recordings:
            with self.subTest(recording.name):
                live, _ = read_rmm(recording.export("csv").decode())
                if recording in self.sound():
                    wanted = {one["address"]: one["size"] for one in recording.expected["live"]
                              if one["space"] == SPACE_ON_DEVICE}
                    self.assertEqual(live, wanted)
                read_rmm(recording.export("csv", begin=0.0006, end=0.0008).decode())


class CommandLine(unittest.TestCase):
    """`cachealloc export` as a user types it."""

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.scratch.name)
        cls.recording = Recording(cls.folder, "plain", SEED)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def export(self, *arguments, expect=0):
        done = subprocess.run([CACHEALLOC, "export", *arguments], capture_output=True)
        self.assertEqual(done.returncode, expect, done.stderr)
        return done

    def test_formats_as_files_and_on_standard_output(self):
        for form in ("memory_viz", "collapsed", "speedscope", "perfetto", "csv"):
            output = self.folder / form
            done = self.export("--format", form, "-o", output, self.recording.file)
            self.assertEqual(done.stdout, b"")
            # Where names come from is said once for each module.
            if form in ("memory_viz", "collapsed", "speedscope"):
                self.assertEqual(done.stderr.count(b"/opt/app/bin/a.out: no file found"), 1)
            done = self.export("--format", form, "-o", "-", "--no-symbols", self.recording.file)
            self.assertEqual(done.stdout, output.read_bytes())
            self.assertEqual(done.stderr, b"")

    def test_an_existing_file_is_kept(self):
        output = self.folder / "existing"
        output.write_text("kept")
        arguments = ("--format", "csv", "-o", output, self.recording.file)
        self.assertIn(b"-f", self.export(*arguments, expect=2).stderr)
        self.assertEqual(output.read_text(), "kept")
        self.export("-f", *arguments)
        self.assertTrue(output.read_text().startswith("Thread,"))
        # Not the recording itself, whatever is asked for.
        before = self.recording.file.read_bytes()
        self.export("-f", "--format", "csv", "-o", self.recording.file, self.recording.file,
                    expect=2)
        self.assertEqual(self.recording.file.read_bytes(), before)

    def test_mistakes(self):
        output = self.folder / "never"
        self.export("--format", "pdf", "-o", output, self.recording.file, expect=2)
        self.export("--format", "csv", "--from", "2", "--to", "1", "-o", output,
                    self.recording.file, expect=2)
        self.export("--format", "csv", "-o", self.folder / "no" / "folder", self.recording.file,
                    expect=2)
        self.export("--format", "csv", "-o", output, self.folder / "none", expect=3)
        text = self.folder / "text"
        text.write_text("no recording")
        done = self.export("--format", "csv", "-o", output, text, expect=3)
        self.assertEqual(done.stderr.count(b"\n"), 1)
        self.assertFalse(output.exists())

    def test_window_and_device(self):
        done = self.export("--format", "csv", "--from", "0.0005", "--to", "0.0007", "--device",
                           "2", "-o", "-", self.recording.file)
        rows = list(csv.DictReader(done.stdout.decode().splitlines()))
        self.assertTrue(rows)
        self.assertLess(len(rows), 300)


if __name__ == "__main__":
    EXPORT_CASE = sys.argv.pop(1)
    CACHEALLOC = sys.argv.pop(1)
    print(f"seed {SEED}")
    unittest.main(verbosity=1)
