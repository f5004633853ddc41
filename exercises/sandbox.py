"""The sandbox of a student's process: no network, no files of the course, bounded memory and processes.

Made by bubblewrap, which needs Linux and no rights of an administrator. What it does not stop is said in the
Instructors' guide.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import IO

import pyseccomp

import attn_book
import attn_core

HERE = Path(__file__).resolve().parent
MEMORY = 4 * 2**30
"""Bytes of address space for a submission."""
PROCESSES = 64
"""Processes and threads for a submission."""
SCRATCH = 256 * 2**20
"""Bytes that it may write to /tmp, and as many to /dev/shm; all of them are forgotten."""
NOBODIES = 2**30
"""Graded by root, each submission runs as a user of its own: this number and the grader's process."""
REFUSED_CALLS = (
    # Keys of the session and of the user, which processes share.
    *("keyctl", "add_key", "request_key"),
    # New namespaces, in which a process would be root, and what root would do there.
    *("unshare", "setns", "mount", "umount2", "pivot_root", "chroot"),
    # Other processes, and the kernel's larger doors.
    *("ptrace", "process_vm_readv", "process_vm_writev", "bpf", "perf_event_open", "userfaultfd", "io_uring_setup"),
    # Each submission stays on its processor, so that it slows no other.
    "sched_setaffinity",
)
CLONE_NEWUSER = 0x10000000


class NoSandboxError(RuntimeError):
    """This machine cannot shut a process in."""


def write_filter(file: IO[bytes]) -> None:
    """Write the filter of system calls that bubblewrap installs."""
    rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    for name in REFUSED_CALLS:
        rules.add_rule(pyseccomp.ERRNO(errno.EPERM), name)
    new_user = pyseccomp.Arg(0, pyseccomp.MASKED_EQ, CLONE_NEWUSER, CLONE_NEWUSER)
    rules.add_rule(pyseccomp.ERRNO(errno.EPERM), "clone", new_user)
    # A filter cannot see clone3's flags; told that there is none, the C library uses clone.
    rules.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
    rules.export_bpf(file)
    file.seek(0)


def command(requests: int, answers: int, rules: int) -> list[str]:
    """The command that starts a student's process, with the descriptors that it inherits."""
    packages = [package.__path__[0] for package in (attn_book, attn_core)]
    seen = [sys.prefix, sys.base_prefix, *packages, *_system()]
    binds = [part for path in dict.fromkeys(seen) for part in _bind(Path(path))]
    files = [part for name in ("player.py", "wire.py") for part in ("--ro-bind", str(HERE / name), f"/grading/{name}")]
    return [
        _bubblewrap(),
        *(*_apart(), "--die-with-parent", "--new-session", "--clearenv", "--seccomp", str(rules)),
        *("--proc", "/proc", "--dev", "/dev"),
        *(part for place in ("/tmp", "/dev/shm") for part in _scratch(place)),
        *(*binds, *files, "--remount-ro", "/"),
        *("--chdir", "/tmp", "--setenv", "HOME", "/tmp", "--setenv", "PATH", "/usr/bin:/bin"),
        *(
            "--setenv",
            "OMP_NUM_THREADS",
            "1",
            "--setenv",
            "MPLBACKEND",
            "module://matplotlib_inline.backend_inline",
            "--setenv",
            "MPLCONFIGDIR",
            "/tmp",
        ),
        *("--setenv", "IPYTHONDIR", "/tmp/ipython", "--setenv", "LANG", "C.UTF-8"),
        # There is no compiler in here: torch.compile gives back what it is given.
        *("--setenv", "TORCH_COMPILE_DISABLE", "1"),
        *(sys.executable, "/grading/player.py"),
        *map(str, (requests, answers, MEMORY, PROCESSES, NOBODIES + os.getpid())),
    ]


def _scratch(place: str) -> list[str]:
    return ["--perms", "1777", "--size", str(SCRATCH), "--tmpfs", place]


def _bind(path: Path) -> list[str]:
    """Show a folder or file, to be read only; the folders above it are there and otherwise empty."""
    above = [part for folder in [*path.parents][-2::-1] for part in ("--perms", "0755", "--dir", str(folder))]
    return [*above, "--ro-bind", str(path), str(path)]


def check_sandbox() -> None:
    """See that a process can be shut in here.

    Raises:
        NoSandboxError: it cannot, and why.
    """
    trial = [_bubblewrap(), *_apart(), "--size", "65536", "--tmpfs", "/tmp", "--ro-bind", "/", "/", "true"]
    done = subprocess.run(trial, capture_output=True, text=True)
    if done.returncode:
        raise NoSandboxError(f"bubblewrap cannot shut a process in here: {done.stderr.strip()}")


def _bubblewrap() -> str:
    found = shutil.which("bwrap")
    if not found:
        raise NoSandboxError("grading needs bubblewrap (Debian, Ubuntu: apt-get install bubblewrap), on Linux")
    return found


def _system() -> list[str]:
    """The system's programs and libraries, where they lie here."""
    return [
        path
        for path in ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")
        if Path(path).exists()
    ]


def _apart() -> list[str]:
    """Apart from everything: processes, network, users. Root, who has the right to all of it, becomes nobody instead
    (player.confine), and keeps until then what that takes."""
    if os.getuid():
        return ["--unshare-all"]
    names = ("ipc", "pid", "net", "uts")
    return [
        *(f"--unshare-{name}" for name in names),
        "--cap-drop",
        "ALL",
        "--cap-add",
        "CAP_SETUID",
        "--cap-add",
        "CAP_SETGID",
    ]
