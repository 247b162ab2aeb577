#!/usr/bin/env python3
"""`cachealloc run` and the reports about real recordings: CUDA programs on the simulated CUDA.
Usage: recorded_test.py TOOL SIMULATED_CUDA APPS"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from peak_of import peaks

TOOL, SIMULATED, APPS = sys.argv[1:4]


class Recorded(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def tool(self, *arguments):
        environment = {**os.environ, "LD_LIBRARY_PATH": SIMULATED,
                       "CACHEALLOC_TRACE_DIR": str(self.folder),
                       # The programs are not ours: their leaks are not looked for.
                       "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}
        environment.pop("CACHEALLOC_TRACE", None)
        return subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True,
                              env=environment, timeout=300)

    def recorded(self, app):
        path = self.folder / f"{app}.trace"
        done = self.tool("run", "-o", path, "--", f"{APPS}/{app}")
        self.assertEqual(done.returncode, 0, done.stderr)
        return path, json.loads(self.tool("report", path, "--json").stdout)

    def test_the_peak_is_what_the_events_add_up_to(self):
        for app in ("threads", "oom"):
            with self.subTest(app):
                path, report = self.recorded(app)
                told = {device["ordinal"]: device["peak_live"]["bytes"]
                        for device in report["devices"]}
                self.assertEqual(told, peaks(path))
                self.assertEqual(report["end"], "clean")
                self.assertEqual(report["lacks"], [])
                self.assertEqual(self.tool("leaks", path, "--fail-on", "any").returncode, 0)

    def test_running_out_of_memory_names_request_stack_and_holders(self):
        _, report = self.recorded("oom")
        failed = report["out_of_memory"]
        self.assertGreater(failed["bytes"], failed["device_free"])
        functions = [frame["function"] for frame in failed["frames"]]
        self.assertTrue(any(name.startswith("main") for name in functions), functions)
        self.assertFalse(any("cachealloc" in frame["module"] for frame in failed["frames"]))
        self.assertGreater(failed["holders"][0]["bytes"], failed["bytes"])

    def test_without_a_name_the_recording_of_a_failure_stays_and_is_found(self):
        self.assertEqual(self.tool("run", "--", f"{APPS}/oom").returncode, 0)
        self.assertIn("OUT OF MEMORY", self.tool("report").stdout)

    def test_a_report_right_after_the_run_leaves_no_file(self):
        for command in ([f"{APPS}/threads"], ["sh", "-c", f"{APPS}/threads; true"]):
            done = self.tool("run", "--report", "--", *command)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("peak live", done.stdout)
        self.assertEqual(list(self.folder.rglob("*.trace")), [])


unittest.main(argv=sys.argv[:1], verbosity=1)
