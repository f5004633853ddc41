"""The sandbox of a student's process: no network, no files of the course, bounded memory and processes.

Made by bubblewrap, which needs Linux and no rights of an administrator. What it does not stop is said in the
Instructors' guide.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import IO

import attn_book
import attn_core

HERE = Path(__file__).resolve().parent
MEMORY = 4 * 2**30
"""Bytes of address space for a process of a submission, and for the one that grades it."""
PROCESSES = 64
"""Processes and threads for a submission."""
SCRATCH = 256 * 2**20
"""Bytes that it may write to /tmp, and as many to /dev/shm; all of them are forgotten."""
NOBODIES = 2**30
"""Graded by root, each submission runs as a user of its own: this number and the grader's process."""
REFUSED_CALLS: tuple[str | int, ...] = (
    # Keys of the session and of the user, which processes share.
    *("keyctl", "add_key", "request_key"),
    # New namespaces, in which a process would be root, and what root would do there.
    *("unshare", "setns", "mount", "umount2", "pivot_root", "chroot"),
    *("fsopen", "fspick", "fsmount", "open_tree", "move_mount"),
    # Other processes, and the kernel's larger doors.
    *("ptrace", "process_vm_readv", "process_vm_writev", "bpf", "perf_event_open", "userfaultfd", "io_uring_setup"),
    # Each submission stays on its processor, so that it slows no other.
    "sched_setaffinity",
    # What the kernel has logged, and where folders lie outside: syslog, pidfd_getfd, statmount, listmount. The library
    # has no names for the last ones, whose numbers are the same on all machines.
    *("syslog", 438, 457, 458),
)
FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_NETLINK)
"""The sockets that a submission may make. Others, such as AF_VSOCK, know no network namespace."""
ENVIRONMENT = {
    **{"HOME": "/tmp", "USER": "student", "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"},
    **{"MPLBACKEND": "module://matplotlib_inline.backend_inline", "MPLCONFIGDIR": "/tmp", "IPYTHONDIR": "/tmp/ipython"},
    # A submission has no compiler: torch.compile gives back what it is given.
    "TORCH_COMPILE_DISABLE": "1",
}
"""All that a submission finds in its environment, beside where Python lies."""
CLONE_NEWUSER = 0x10000000
NOBODY = 65534
"""The user that a submission becomes where root grades it without a sandbox."""


class NoSandboxError(BaseException):
    """This machine cannot shut a process in. No Exception, so that no test takes it for a wrong answer."""


def write_filter(file: IO[bytes]) -> None:
    """Write the filter of system calls that bubblewrap installs."""
    import pyseccomp  # which open_command does not need

    rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    for name in REFUSED_CALLS:
        rules.add_rule(pyseccomp.ERRNO(errno.EPERM), name)
    new_user = pyseccomp.Arg(0, pyseccomp.MASKED_EQ, CLONE_NEWUSER, CLONE_NEWUSER)
    rules.add_rule(pyseccomp.ERRNO(errno.EPERM), "clone", new_user)
    for call in ("socket", "socketpair"):
        others = [pyseccomp.Arg(0, pyseccomp.EQ, number) for number in range(max(FAMILIES)) if number not in FAMILIES]
        for family in (*others, pyseccomp.Arg(0, pyseccomp.GT, max(FAMILIES))):
            rules.add_rule(pyseccomp.ERRNO(errno.EAFNOSUPPORT), call, family)
    # A filter cannot see clone3's flags; told that there is none, the C library uses clone.
    rules.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
    rules.export_bpf(file)
    file.seek(0)


def command(requests: int, answers: int, rules: int) -> list[str]:
    """The command that starts a student's process, with the descriptors that it inherits; to be run in no environment.

    Inside, every folder has a name that says nothing of this machine, and there is no /proc, which would show the
    environment and arguments of processes, and where the folders lie outside.
    """
    python = Path(sys.executable).resolve()
    base, inside = Path(sys.base_prefix).resolve(), Path("/usr" if sys.base_prefix == "/usr" else "/python")
    site = Path(sysconfig.get_path("purelib"))
    seen = {path: Path(path) for path in (*_system(), "/proc/cpuinfo")}
    seen |= {str(inside): base, "/site": site}
    seen |= {f"/book/{package.__name__}": Path(package.__path__[0]) for package in (attn_book, attn_core)}
    seen |= {f"/grading/{name}": HERE / name for name in ("player.py", "wire.py")}
    # Files in which pip wrote where a package came from.
    told = (
        path for pattern in ("*.pth", "__editable__*", "*.dist-info/direct_url.json") for path in site.glob(pattern)
    )
    seen |= {f"/site/{path.relative_to(site)}": Path("/dev/null") for path in told if path.is_file()}
    environment = ENVIRONMENT | {"PYTHONPATH": "/book:/site", "LD_LIBRARY_PATH": f"{inside}/lib"}
    return [
        _bubblewrap(),
        *(*_apart(), "--hostname", "sandbox", "--die-with-parent", "--new-session", "--seccomp", str(rules)),
        *("--dev", "/dev", *(part for place in ("/etc", "/proc", "/book", "/grading") for part in _folder(place))),
        *(part for place in ("/tmp", "/dev/shm") for part in _scratch(place)),
        *(part for place, path in seen.items() for part in ("--ro-bind", str(path), place)),
        *("--remount-ro", "/", "--chdir", "/tmp"),
        *(part for name, value in environment.items() for part in ("--setenv", name, value)),
        *(str(inside / python.relative_to(base)), "-S", "/grading/player.py"),  # no packages but those of /site
        *map(str, (requests, answers, MEMORY, PROCESSES, NOBODIES + os.getpid())),
    ]


def open_command(requests: int, answers: int) -> tuple[list[str], dict[str, str]]:
    """The command and the environment of a student's process on a machine that allows no sandbox.

    Root, who runs graders there, starts it as nobody: it cannot read what root keeps to itself. It has the network.
    """
    numbers = map(str, (requests, answers, MEMORY, PROCESSES, NOBODY))
    path = os.pathsep.join(str(Path(package.__path__[0]).parent) for package in (attn_book, attn_core))
    return [sys.executable, str(HERE / "player.py"), *numbers], ENVIRONMENT | {"PYTHONPATH": path}


def _folder(place: str) -> list[str]:
    return ["--perms", "0755", "--dir", place]


def _scratch(place: str) -> list[str]:
    return ["--perms", "1777", "--size", str(SCRATCH), "--tmpfs", place]


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
        return ["--unshare-all", "--uid", "1000", "--gid", "1000"]
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
