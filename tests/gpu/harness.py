"""What every GPU check and benchmark driver shares: where the binaries are, how a program is run
natively or under the shim, and how its output is read.

A program runs in one of the modes of MODES. `native` has no preload at all; `counted` has the
shim's doors in place but lets every call pass (pool:False), so that it counts what reaches the
driver natively; the others serve the program from the pool (`default` with no option set).

Only the Python standard library is used. Nothing here starts a CUDA context in this process.
"""

import ctypes
import glob
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SKIPPED = 77  # the exit status that ctest reads as "skipped"

MODES = {
    "native": None,
    "counted": "pool:False,stats:True",
    "default": "stats:True",
    "async": "free:async,stats:True",
    "sync": "free:sync,stats:True",
}


@dataclass
class Run:
    """One finished process. `status` is None when it ran past its time limit."""

    command: list
    mode: str
    status: int | None
    out: str
    err: str
    seconds: float
    stats: dict | None = None
    times: dict = field(default_factory=dict)

    @property
    def ok(self):
        return self.status == 0

    def why(self):
        """One line that says how the process ended."""
        if self.status is None:
            return f"ran past its limit ({self.seconds:.0f} s)"
        text = f"exit {self.status}" if self.status >= 0 else f"killed by signal {-self.status}"
        last = [line for line in self.err.strip().splitlines()
                if not line.startswith("cachealloc-stats")]
        return text + (f": {last[-1][:160]}" if last else "")


def gpu_count():
    """How many GPUs the driver offers; 0 without a driver or on simulated CUDA."""
    if find_gpu() is None:
        return 0
    count = ctypes.c_int(0)
    ctypes.CDLL("libcuda.so.1").cuDeviceGetCount(ctypes.byref(count))
    return count.value


def find_gpu():
    """Name of GPU 0 as the driver gives it; None without driver or GPU, or on simulated CUDA."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    if hasattr(cuda, "simcuda_calls"):
        return None
    count = ctypes.c_int(0)
    device = ctypes.c_int(0)
    name = ctypes.create_string_buffer(256)
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or count.value == 0:
        return None
    if cuda.cuDeviceGet(ctypes.byref(device), 0) or cuda.cuDeviceGetName(name, 256, device):
        return None
    return name.value.decode()


def _loaded_file(name):
    """Path of a library that this process has mapped, or None."""
    for line in open("/proc/self/maps"):
        path = line.rstrip("\n").partition("/")[2]
        if path.rpartition("/")[2].startswith(name):
            return Path("/" + path)
    return None


def driver_version():
    """CUDA version of the driver as (major, minor), or None."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    version = ctypes.c_int(0)
    if cuda.cuDriverGetVersion(ctypes.byref(version)):
        return None
    return version.value // 1000, version.value % 1000 // 10


def _cudart_candidates(build):
    roots = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH", "CUDAToolkit_ROOT")]
    roots += ["/usr/local/cuda"] + sorted(glob.glob("/usr/local/cuda-*"), reverse=True)
    roots += [str(REPOSITORY / ".toolkit" / "nvidia" / "cu13")]
    roots += glob.glob("/usr/lib/python3*/site-packages/nvidia/cu13")
    roots += [str(Path(p) / "nvidia" / "cu13") for p in sys.path if p]
    for root in roots:
        if root:
            for folder in ("lib64", "lib", "targets/x86_64-linux/lib"):
                yield Path(root) / folder / "libcudart.so.13"
    yield build / "support" / "libcudart.so.13"


class Child:
    """A program that takes turns: lines go in, lines come out (turn_taking.py). One thread uses it."""

    def __init__(self, name, command, mode, env):
        self.name = name
        self.command, self.mode, self.env = command, mode, env
        self.begin = time.monotonic()
        self.err_file = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.err_file,
                                        process_group=0)
        self.pending = b""
        self.out = b""

    def write_line(self, text):
        """A child that has ended is noticed by the read that follows."""
        try:
            self.process.stdin.write(text.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def read_line(self, deadline):
        """The next line without its end, or None where none came before the deadline (monotonic)."""
        while b"\n" not in self.pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                return None
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:  # it has ended
                return ""
            self.pending += more
            self.out += more
        line, _, self.pending = self.pending.partition(b"\n")
        return line.decode(errors="replace")

    def finish(self, timeout):
        """Ends its input and waits; kills its process group when it does not end by itself."""
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            status = None
        if status is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.process.stdout.close()
        self.err_file.seek(0)
        return Run(self.command, self.mode, status, self.out.decode(errors="replace"),
                   self.err_file.read().decode(errors="replace"), time.monotonic() - self.begin)


class Harness:
    """Runs programs of one build folder. Thread-safe; only what is not timed runs at the same time."""

    def __init__(self, build, log=None, seconds=60):
        self.build = Path(build).resolve()
        self.log_file = log
        self.log_lock = threading.Lock()
        self.seconds = seconds  # how long the producer/consumer streams run
        self.records = True     # as the shim comes; False: record:off
        self.conf = ""          # settings for every run under the shim; a case's own come after it
        self.deadline = None    # of the section that runs (monotonic); bounds every process
        self._scratch = tempfile.TemporaryDirectory(prefix="cachealloc-gpu-")
        # A folder with the real runtime and the real driver alone: no other library of a toolkit
        # comes before the one that a program brings itself (PyTorch's own cuBLAS, say), and no
        # program finds the simulated driver that it may have been linked against.
        self.cudart_dir = Path(self._scratch.name) / "cudart"
        self.cudart_dir.mkdir()
        self.cudart = next((p for p in _cudart_candidates(self.build) if p.exists()), None)
        if self.cudart:
            (self.cudart_dir / "libcudart.so.13").symlink_to(self.cudart.resolve())
        driver = _loaded_file("libcuda.so") if find_gpu() else None
        if driver:
            (self.cudart_dir / "libcuda.so.1").symlink_to(driver)

    def scratch(self, name):
        """A place for a file that lives as long as this harness."""
        return Path(self._scratch.name) / name

    def shim(self, testing=False):
        name = "libcachealloc_testing.so" if testing else "libcachealloc.so"
        return self.build / "lib" / name

    def binary(self, *names):
        """First existing of the given paths relative to the build folder, or None."""
        for name in names:
            path = self.build / name
            if path.is_file():
                return path
        return None

    def app(self, name):
        return self.binary(f"apps/{name}")

    def apps(self):
        """Names of all programs of tests/apps in the build folder, sorted."""
        return sorted(path.name for path in (self.build / "apps").glob("*")
                      if path.is_file() and os.access(path, os.X_OK) and ".so" not in path.name)

    def environment(self, mode, testing=False, python=False, extra=None, conf=None,
                    all_gpus=False):
        """The child's environment: ours without any trace of a preload or of the simulated CUDA. It
        shows the first GPU alone unless `all_gpus` is set."""
        env = {k: v for k, v in os.environ.items()
               if k not in ("LD_PRELOAD", "SIMCUDA") and not k.startswith("CACHEALLOC")}
        paths = [p for p in env.pop("LD_LIBRARY_PATH", "").split(":") if p and "simcuda" not in p]
        if not python:
            paths = [str(self.cudart_dir), str(self.build / "support")] + paths
        if paths:
            env["LD_LIBRARY_PATH"] = ":".join(paths)
        if not all_gpus:
            env.setdefault("CUDA_VISIBLE_DEVICES", "0")
        options = conf if conf is not None and mode != "native" else MODES[mode]
        if options is not None:
            env["LD_PRELOAD"] = str(self.shim(testing))
            parts = [options] if options == "off" else [
                "" if self.records else "record:off", self.conf, options]
            env["CACHEALLOC_CONF"] = ",".join(part for part in parts if part)
        env.update(extra or {})
        return env

    def time_left(self, wanted):
        """Seconds that something may take which would take up to `wanted`; never less than 5."""
        if self.deadline is None:
            return wanted
        return max(5, min(wanted, self.deadline - time.monotonic()))

    def run(self, command, mode="native", timeout=60, **kwargs):
        """Runs to the end or to the limit (then its whole process group is killed)."""
        timeout = self.time_left(timeout)
        command = [str(part) for part in command]
        env = self.environment(mode, **kwargs)
        begin = time.monotonic()
        child = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, process_group=0)
        try:
            out, err = child.communicate(timeout=timeout)
            status = child.returncode
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            out, err = child.communicate()
            status = None
        seconds = time.monotonic() - begin
        result = Run(command, mode, status, out.decode(errors="replace"),
                     err.decode(errors="replace"), seconds)
        return self.finished(result, env)

    def finished(self, result, env):
        """Reads what a run reported about itself, and logs it."""
        result.stats = tagged(result.err, "cachealloc-stats")
        result.times = tagged(result.err, "gpu-time") or app_times(result.err)
        self.log(result, env)
        return result

    def all_at_once(self, tasks):
        """Calls several functions at the same time; their results in order. For what is not timed:
        a slow start is then paid once."""
        with ThreadPoolExecutor(max_workers=max(1, len(tasks))) as pool:
            return list(pool.map(lambda task: task(), tasks))

    def run_all(self, jobs):
        """The same for programs; `jobs` are dictionaries of run's arguments."""
        return self.all_at_once([lambda job=job: self.run(**job) for job in jobs])

    def start(self, name, command, mode="native", **kwargs):
        """Starts a program that takes turns."""
        command = [str(part) for part in command]
        return Child(name, command, mode, self.environment(mode, **kwargs))

    def stop(self, child, timeout=30):
        """The Run of a Child that is to end now."""
        return self.finished(child.finish(timeout), child.env)

    def log(self, result, env):
        if not self.log_file:
            return
        settings = " ".join(f"{k}={env[k]}" for k in sorted(env)
                            if k.startswith(("CACHEALLOC", "LD_PRELOAD", "PYTORCH", "CUBLAS")))
        with self.log_lock:
            self.log_file.write(f"=== [{result.mode}] {settings} {' '.join(result.command)}\n"
                                f"=== status {result.status}, {result.seconds:.2f} s\n"
                                f"--- stdout\n{result.out[-20000:]}\n"
                                f"--- stderr\n{result.err[-20000:]}\n")
            self.log_file.flush()


def app_times(text):
    """The cost line that a program of tests/apps prints on stderr with --json, or {}."""
    for line in text.splitlines():
        if line.startswith("{") and line.endswith("}"):
            try:
                cost = json.loads(line)
            except ValueError:
                continue
            if "total_ms" in cost:
                return {"unit": "ms", "median": cost["total_ms"], **cost}
    return {}


def tagged(text, tag):
    """The JSON behind the last line `tag: {...}` of a text, or None."""
    found = re.findall(rf"^{tag}: (\{{.*\}})\s*$", text, re.MULTILINE)
    if not found:
        return None
    try:
        return json.loads(found[-1])
    except ValueError:
        return None


def driver_calls(run):
    """(allocation calls, free calls) that reached the driver, or None where nothing was counted."""
    if not run.stats:
        return None
    return run.stats.get("driver_alloc_calls"), run.stats.get("driver_free_calls")


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def table(rows, header):
    """Plain text table, columns aligned, numbers as they come."""
    cells = [list(map(str, header))] + [list(map(str, row)) for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
             for row in cells]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)
