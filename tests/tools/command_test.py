#!/usr/bin/env python3
"""The program `cachealloc` from outside: exit codes, --json, one-line errors, run.
Usage: command_test.py TOOL MAKE_RECORDING"""

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from peak_of import peaks

TOOL, MAKE = sys.argv[1:3]


def tool(*arguments, **options):
    return subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True, **options)


class Commands(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.example = self.folder / "example.trace"
        subprocess.run([MAKE, "example", self.example], check=True)

    def damaged(self, name, change):
        data = bytearray(self.example.read_bytes())
        data = change(data) or data
        path = self.folder / name
        path.write_bytes(data)
        return path

    def test_reports_fit_a_screen_and_name_what_matters(self):
        done = tool("report", self.example)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertLessEqual(len(lines), 60)
        self.assertLessEqual(max(map(len, lines)), 112)
        for text in ("train", "OUT OF MEMORY", "100 MiB", "59.0 MiB", "160 MiB", "pinned", "H200"):
            self.assertIn(text, done.stdout)
        self.assertNotIn("libcachealloc", done.stdout)

    def test_json_is_json_and_tells_the_peak_that_an_independent_script_finds(self):
        churn = self.folder / "churn.trace"
        subprocess.run([MAKE, "churn", "20000", churn], check=True)
        for path in (self.example, churn):
            report = json.loads(tool("report", path, "--json").stdout)
            told = {device["ordinal"]: device["peak_live"]["bytes"] for device in report["devices"]}
            self.assertEqual(told, peaks(path))

    def test_report_tells_memory_stats_under_the_names_of_torch(self):
        device = json.loads(tool("report", self.example, "--json").stdout)["devices"][0]
        stats = device["memory_stats"]
        self.assertEqual(len(stats), 123)
        self.assertEqual(stats["reserved_bytes.all.peak"], 160 << 20)
        self.assertEqual(stats["active.large_pool.freed"], 3)
        self.assertTrue(device["memory_stats_from_events"])
        brief = tool("report", self.example).stdout
        whole = tool("report", self.example, "--by-class").stdout
        for text in ("Reserved memory", "Non-releasable blocks", "peak", "total in"):
            self.assertIn(text, brief)
        self.assertNotIn("from small pool", brief)
        self.assertEqual(whole.count("from small pool"), 9)

    def test_every_report_has_json(self):
        for command in (["report"], ["leaks"], ["peak"], ["check"], ["diff", self.example]):
            done = tool(*command, self.example, "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            json.loads(done.stdout)
        self.assertIn("slack_mb", {one["name"] for one in
                                   json.loads(tool("options", "--json").stdout)["options"]})

    def test_unreadable_files_are_one_line_and_status_3(self):
        unreadable = {
            "no recording": self.folder / "missing.trace",
            "directory": self.folder,
            "empty": self.damaged("empty.trace", lambda data: data.clear()),
            "foreign": self.damaged("foreign.trace", lambda data: b"\x7fELF" + bytes(5000)),
            "cut in its header": self.damaged("head.trace", lambda data: data[:2000]),
            "newer": self.damaged("newer.trace", lambda data: struct.pack_into("<H", data, 12, 2)),
            "byte order": self.damaged("order.trace",
                                       lambda data: struct.pack_into(">I", data, 8, 0x01020304)),
            "sections": self.damaged("sections.trace",
                                     lambda data: struct.pack_into("<I", data, 20, 99)),
        }
        if os.geteuid():
            unreadable["forbidden"] = self.damaged("forbidden.trace", lambda data: data)
            unreadable["forbidden"].chmod(0)
        fifo = self.folder / "pipe.trace"
        os.mkfifo(fifo)
        unreadable["pipe"] = fifo
        for what, path in unreadable.items():
            for command in ("report", "leaks", "peak", "check"):
                with self.subTest(what, command=command):
                    done = tool(command, path, timeout=30)
                    self.assertEqual(done.returncode, 3, done.stderr)
                    self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                    self.assertIn(str(path), done.stderr)
                    self.assertEqual(done.stdout, "")

    def test_what_is_cut_is_read_as_far_as_it_goes(self):
        size = self.example.stat().st_size
        for length in range(4096, size, 512):
            path = self.damaged("cut.trace", lambda data: data[:length])
            done = tool("check", path, "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(json.loads(done.stdout)["lacks"], length)
        self.assertIn("cut", tool("report", path).stdout)

    def test_leaks_are_findings_only_if_asked(self):
        self.assertEqual(tool("leaks", self.example).returncode, 0)
        self.assertEqual(tool("leaks", self.example, "--fail-on", "any").returncode, 1)
        self.assertEqual(tool("leaks", self.example, "--fail-on", "3").returncode, 0)
        big = tool("leaks", self.example, "--min-bytes", "2M", "--json")
        self.assertEqual([leak["bytes"] for leak in json.loads(big.stdout)["leaks"]], [8 << 20])

    def test_diff_tells_what_grew(self):
        churn = self.folder / "churn.trace"
        subprocess.run([MAKE, "churn", "5000", churn], check=True)
        self.assertIn("0 of 2 stacks changed", tool("diff", self.example, self.example).stdout)
        self.assertEqual(tool("diff", churn, self.example, "--fail-on", "9M").returncode, 0)
        self.assertEqual(tool("diff", churn, self.example, "--fail-on", "8M").returncode, 1)

    def test_the_newest_recording_is_found(self):
        shutil.copy(self.example, self.folder / "newest.trace")
        os.utime(self.folder / "newest.trace", (2e9, 2e9))
        named = tool("report", "--json", env={**os.environ, "CACHEALLOC_TRACE_DIR": str(self.folder)})
        self.assertEqual(json.loads(named.stdout)["file"], str(self.folder / "newest.trace"))

    def test_wrong_command_lines_are_status_2(self):
        for line in ([], ["reprot"], ["report", "--top", "0"], ["report", "--device", "64"],
                     ["leaks", "--min-bytes", "many"], ["diff", self.example], ["run"],
                     ["run", "--conf", "fre:async", "--", "true"], ["run", "--bogus", "--", "true"],
                     ["run", "-o", self.folder / "no" / "where", "--", "true"],
                     ["run", "-o", self.example, "--", "true"],
                     ["options", "--conf", "nonsense:1"]):
            done = tool(*line)
            self.assertEqual(done.returncode, 2, line)
            self.assertTrue(done.stderr, line)

    def test_help_has_an_example(self):
        for command in ("run", "report", "leaks", "peak", "diff", "check", "export", "options"):
            done = tool(command, "--help")
            self.assertEqual(done.returncode, 0)
            self.assertIn("Example: cachealloc " + command, done.stdout)
            self.assertNotIn("{", done.stdout)  # how CLI11 writes a flag's value or a table

    def test_full_disks_are_noticed(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([TOOL, "report", self.example], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 2)

    def test_run_is_the_program(self):
        shell = ["--", "sh", "-c"]
        self.assertEqual(tool("run", *shell, "exit 7").returncode, 7)
        self.assertEqual(tool("run", *shell, "kill -9 $$").returncode, -signal.SIGKILL)
        self.assertEqual(tool("run", "--report", *shell, "kill -9 $$").returncode, 128 + 9)
        self.assertEqual(tool("run", "--report", *shell, "exit 7").returncode, 7)
        self.assertEqual(tool("run", "--", "/no/such/program").returncode, 127)
        self.assertEqual(tool("run", "--", str(self.example)).returncode, 126)
        self.assertEqual(tool("run", "echo", "--json", "-x").stdout, "--json -x\n")

    def test_run_sets_the_environment(self):
        out = tool("run", "--conf", "free:async", "-o", self.folder / "%e.%p", "--", "env",
                   env={**os.environ, "LD_PRELOAD": "/lib/x86_64-linux-gnu/libm.so.6",
                        "ASAN_OPTIONS": "verify_asan_link_order=0"}).stdout # the tool's own
        found = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
        self.assertEqual(found["CACHEALLOC_CONF"], "free:async")
        self.assertEqual(found["CACHEALLOC_TRACE"], str(self.folder / "%e.%p"))
        *sanitizers, first, second = found["LD_PRELOAD"].split(":")
        self.assertTrue(all("san.so" in name for name in sanitizers))
        self.assertEqual(Path(first).name, "libcachealloc.so")
        self.assertEqual(second, "/lib/x86_64-linux-gnu/libm.so.6")


unittest.main(argv=sys.argv[:1], verbosity=1)
