"""Where there is no room for a file, or nothing to record."""

import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from ending_cases import whole


def unrecorded(case, result, out="recursion ok\n"):
    """The host ran to its end, and exactly one line says that it was not recorded."""
    case.expect(result.status == 7 and result.out == out,
                f"the host is undisturbed: {result.status} {result.out!r} {result.err[-300:]!r}")
    case.expect(len(result.said) == 1, f"one line, not {result.said}")
    case.expect("record" in result.said[0] or "trace" in result.said[0],
                f"it says what is missing: {result.said[0]}")


def file_limit(case):
    """RLIMIT_FSIZE: the kernel sends SIGXFSZ to who goes beyond it. The simulated driver keeps its
    memory in a file, so the null driver serves."""
    case.need_null_driver()

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it, and children inherit that
    result = case.run([case.program("recursion")], before=limit, CRASH_DRIVER=case.args.null_driver)
    unrecorded(case, result)
    case.expect(case.files() == [], f"nothing left behind: {case.files()}")


def file_limit_for_ring(case):
    """A limit that lets the file begin but not its ring grow: recorded as far as there is room."""
    case.need_null_driver()
    wanted = case.folder / "short.trace"

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    result = case.run([case.program("endings"), "return"], before=limit, CACHEALLOC_TRACE=wanted,
                      CACHEALLOC_CONF="ring_mb:4096", CRASH_DRIVER=case.args.null_driver)
    case.expect(result.status == 7 and result.out == "done\n",
                f"the host is undisturbed: {result.status} {result.err[-300:]!r}")
    case.expect(len(result.said) <= 1, f"one line at most: {result.said}")
    if wanted.exists():
        whole(case, wanted)


def no_folder(case):
    """A trace folder that does not exist and cannot be made."""
    (case.folder / "a file").touch()
    result = case.run([case.program("recursion")], CACHEALLOC_TRACE_DIR=case.folder / "a file" / "x")
    unrecorded(case, result)


def on_a_mount(case, options, prepare, command, **changes):
    """Runs a program in a mount namespace where `prepare` (shell) ran; skips where that is not
    allowed. $M is the mount's folder."""
    mount = case.folder / "mount"
    mount.mkdir(exist_ok=True)
    if shutil.which("unshare") is None:
        case.skip("no unshare here")
    outer = ["unshare", *options]
    probe = subprocess.run([*outer, "sh", "-c", 'mount -t tmpfs -o size=64k none "$0"', mount],
                           capture_output=True, check=False)
    if probe.returncode != 0:
        case.skip("no mounts are allowed here")
    env = dict(changes)
    preload = case.args.preload
    script = f'{prepare} && LD_PRELOAD=$P exec "$@"'
    return case.run([*outer, "sh", "-c", script, "sh", *command], LD_PRELOAD=None, P=preload,
                    M=mount, **env)


def namespace():
    return ["-m"] if os.geteuid() == 0 else ["-rm"]


def full_disk(case):
    """A file system with no room left: the explicit folder is the only one tried."""
    result = on_a_mount(case, namespace(),
                        'mount -t tmpfs -o size=1m none "$M" && (cat /dev/zero > "$M/full" || :) 2>&-',
                        [case.program("recursion")], CACHEALLOC_TRACE_DIR=case.folder / "mount")
    unrecorded(case, result)


def read_only(case):
    """A read-only file system."""
    result = on_a_mount(case, namespace(), 'mount -t tmpfs -o ro none "$M"',
                        [case.program("recursion")], CACHEALLOC_TRACE_DIR=case.folder / "mount")
    unrecorded(case, result)


def small_shm(case):
    """Containers give /dev/shm 64 MiB: where $TMPDIR is such a one, another folder serves."""
    here = (case.program("endings"), str(case.folder), __file__)
    if any(path.startswith(("/tmp/", "/var/tmp/")) for path in here):
        case.skip("the build is below /tmp")
    small = "mount -t tmpfs -o size=8m none"
    result = on_a_mount(case, namespace(),
                        f"{small} /dev/shm && {small} /tmp && mount -t tmpfs none /var/tmp",
                        [sys.executable, "-B", Path(__file__).with_name("list_after.py"),
                         "/var/tmp", case.program("endings"), "abort"],
                        CACHEALLOC_TRACE_DIR=None, TMPDIR="/dev/shm")
    case.expect(not result.said, f"nothing said, not {result.said}")
    case.expect(result.out.count(".trace") == 1, f"a file in another folder: {result.out!r}")


def no_cuda(case):
    """A process without CUDA: no file, no word, its own status; whatever was asked for."""
    shell = ["sh", "-c", "echo out; exit 5"]
    for changes in ({}, {"CACHEALLOC_TRACE": case.folder / "never.trace"},
                    {"CACHEALLOC_TRACE": "/nowhere/%p"}, {"CACHEALLOC_CONF": "ring_mb:65536"}):
        result = case.run(shell, **changes)
        case.expect(result.status == 5 and result.out == "out\n" and result.err == "",
                    f"{changes}: {result.status} {result.out!r} {result.err!r}")
        case.expect(case.files() == [], f"{changes}: no file, not {case.files()}")


def record_off(case):
    """record:off: CUDA is used, and no file is made whatever happens."""
    result = case.run([case.program("endings"), "abort"], CACHEALLOC_CONF="record:off")
    case.expect(result.status == -6 and not result.said, f"{result.status} {result.said}")
    case.expect(case.files() == [], f"no file, not {case.files()}")


ROOM = {
    "file_limit": file_limit,
    "file_limit_for_ring": file_limit_for_ring,
    "no_folder": no_folder,
    "full_disk": full_disk,
    "read_only": read_only,
    "small_shm": small_shm,
    "no_cuda": no_cuda,
    "record_off": record_off,
}
