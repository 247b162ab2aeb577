#!/usr/bin/env python3
"""Real recordings, replayed: what one thread did on one stream comes out to the byte.
Usage: replayed_test.py TOOL SIMULATED_CUDA PROGRAM"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOL, SIMULATED, PROGRAM = sys.argv[1:4]
CONFS = ["", "slack_mb:0,slack_percent:0", "cache_mb:0", "free:async", "free:sync",
         "order:fenced", "order:finished", "order:wait", "max_split_size_mb:20",
         "roundup_power2_divisions:4", "expandable_segments:True",
         "expandable_segments:True,slack_mb:0,slack_percent:0", "expandable_segments:True,free:async"]
# At these levels the driver serves stream-ordered calls; fences of both kinds beside one another
# finish at moments that a recording does not tell.
BY_DRIVER = ["order:finished", "order:wait"]
NOT_EXACT = {"plain": [], "stream": BY_DRIVER, "mixed": [*BY_DRIVER, "order:fenced"]}
SEED = "7"


class Replayed(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def tool(self, *arguments):
        environment = {**os.environ, "LD_LIBRARY_PATH": SIMULATED,
                       # The program is not ours: its leaks are not looked for.
                       "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
        for name in ("CACHEALLOC_TRACE", "CACHEALLOC_CONF"):
            environment.pop(name, None)
        done = subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True,
                              env=environment, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def replay(self, how, conf):
        path = self.folder / f"{how}.{len(list(self.folder.iterdir()))}.trace"
        self.tool("run", "-o", path, "--conf", conf, "--", PROGRAM, how, SEED)
        one, = json.loads(self.tool("replay", path, "--json"))["replays"]
        self.assertTrue(one["recorded"]["whole"])
        report = json.loads(self.tool("report", path, "--json"))
        device, = report["devices"]
        # Two readings of one file, and what the recorder counted itself.
        self.assertEqual(one["recorded"]["peak_reserved"], device["peak_reserved"]["bytes"])
        self.assertEqual(one["peak_live"], device["peak_live"]["bytes"])
        return one, report

    def test_one_thread_and_one_stream_come_out_to_the_byte(self):
        for how in ("plain", "stream", "mixed"):
            for conf in CONFS:
                if conf in NOT_EXACT[how]:
                    continue
                with self.subTest(how=how, conf=conf):
                    one, report = self.replay(how, conf)
                    self.assertEqual(one["threads"], 1)
                    self.assertEqual(one["peak_reserved"], one["recorded"]["peak_reserved"])
                    self.assertEqual(one["splits"], report["statistics"]["splits"])

    def test_a_device_that_was_full_is_as_large(self):
        for conf in ("", "expandable_segments:True"):
            with self.subTest(conf=conf):
                one, _ = self.replay("full", conf)
                self.assertTrue(one["fits"])
                self.assertEqual(one["peak_reserved"], one["recorded"]["peak_reserved"])

    def test_several_threads_or_streams_are_near(self):
        for how, threads in (("threads", 3), ("beside", 1)):
            with self.subTest(how):
                one, _ = self.replay(how, "")
                self.assertEqual(one["threads"], threads)
                recorded = one["recorded"]["peak_reserved"]
                self.assertLess(abs(one["peak_reserved"] - recorded), 0.2 * recorded)


unittest.main(argv=sys.argv[:1], verbosity=1)
