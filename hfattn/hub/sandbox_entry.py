"""Enter the sandbox of this process, then replace the process by a command: the inner half of ``sandbox.py``.

``sandbox.py`` runs this file by its path, so it imports nothing from hfattn. Four layers of Linux are combined, each
described in the manual page that is named with its function:

1. namespaces: the process has its own users, processes, network, IPC and mounts, and its root folder contains only the
   paths of a list, read-only;
2. limits of processes, memory, and the size of files;
3. Landlock: rules for files, abstract sockets and signals that hold also where the kernel refuses namespaces;
4. seccomp: calls that the other layers do not cover, such as sockets to the host of a virtual machine, fail.
"""

import contextlib
import ctypes
import errno
import json
import os
import platform
import resource
import struct
import sys
from collections.abc import Iterable, Sequence
from typing import Any

REFUSED = 77  # exit code: this kind of sandbox cannot be made here
NOBODY = 65534

_NAMESPACES = 0x00020000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000  # mount uts ipc user pid net
_READ_ONLY, _NO_SETUID, _NO_DEVICES = 1, 2, 4  # of mounts
_BIND, _RECURSIVE, _PRIVATE, _DETACH = 0x1000, 0x4000, 0x40000, 2
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_PDEATHSIG, _NO_NEW_PRIVILEGES, _SECCOMP = 1, 38, 22  # of prctl(2)
_libc = ctypes.CDLL(None, use_errno=True)

# Architecture in seccomp's data, and numbers of the system calls that fail: socket, setsid, setpgid, ptrace, add_key,
# request_key, keyctl, io_uring_setup. Without setsid and setpgid, one signal to the group reaches all processes.
_SYSTEM_CALLS = {
    "x86_64": (0xC000003E, (41, 112, 109, 101, 248, 249, 250, 425)),
    "aarch64": (0xC00000B7, (198, 157, 154, 117, 217, 218, 219, 425)),
}


def main() -> None:
    """Enter the sandbox, write one line with its name to standard output, and run the command.

    The argument is a JSON object with:
        kind: "namespaces"; "bubblewrap" or "sandbox-exec" if that program started this process; or "by Python only".
        read: paths that the command may read; they exist, and none is below another.
        listed: a folder whose names it may list, but whose files it may not read.
        home: the only folder that it may write to, and its working folder.
        root: an empty folder, on which the root of the mount namespace is mounted.
        memory, file_size, processes, seconds: the limits; bytes for the first two.
        command: the program and its arguments.
    """
    plan = json.loads(sys.argv[1])
    try:
        name = _enter(plan)
    except OSError as error:
        print(f"{plan['kind']}: {error}", file=sys.stderr)
        raise SystemExit(REFUSED) from error
    os.write(1, f"{name}\n".encode())
    os.execv(plan["command"][0], plan["command"])


def _enter(plan: dict[str, Any]) -> str:
    """Enter the sandbox and return its name: the kind and the layers that the kernel has."""
    if sys.platform != "linux":
        limit_resources(plan)
        return plan["kind"]
    _call("prctl", _PDEATHSIG, 9)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # if memory is short, the kernel ends this process first
    if plan["kind"] == "namespaces":
        _new_namespaces(plan)
    os.chdir(plan["home"])
    limit_resources(plan)
    _call("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    layers = [plan["kind"]]
    with contextlib.suppress(OSError):  # the kernel has no Landlock; the name says so
        landlock(plan["read"], plan["listed"], plan["home"], own_processes=plan["kind"] in ("namespaces", "bubblewrap"))
        layers.append("Landlock")
    with contextlib.suppress(OSError, KeyError):  # nor seccomp, or it is another processor
        seccomp(*_SYSTEM_CALLS[platform.machine()])
        layers.append("seccomp")
    return ", ".join(layers)


def _new_namespaces(plan: dict[str, Any]) -> None:
    """Continue as the first process of new namespaces (namespaces(7), user_namespaces(7), pid_namespaces(7)).

    When that process ends, the kernel kills all others in them. After exec(2) the process has no capability, because
    its user id in the namespace is not 0. Root becomes nobody: limits of processes do not hold for root.
    """
    user, group = os.geteuid(), os.getegid()
    # Another process writes the ids: a process in a new namespace cannot map users besides its own.
    readable, writable = os.pipe()
    this = os.getpid()
    helper = os.fork()
    if helper == 0:
        os.close(writable)
        os.read(readable, 1)
        os._exit(_map_users(this, user, group))
    _call("unshare", _NAMESPACES)
    os.close(writable)
    if os.waitpid(helper, 0)[1]:
        raise PermissionError("the kernel maps no users")
    child = os.fork()
    if child:
        os.closerange(0, 3)  # this process must not hold the pipes open
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os._exit(code if code >= 0 else 128 - code)
    _make_root(plan)
    if (
        user == 0 and os.stat(__file__).st_mode & 0o004
    ):  # files of an installation that only root can read stay readable
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    _call("prctl", _PDEATHSIG, 9)  # a change of the user resets it


def _map_users(process: int, user: int, group: int) -> int:
    """Map the user of this process, and nobody, into the namespace of another; return 0, or 1 if the kernel refuses."""
    maps = {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
    if user == 0:
        maps = {"uid_map": f"1 0 1\n{NOBODY} {NOBODY} 1", "gid_map": f"1 {group} 1\n{NOBODY} {NOBODY} 1"}
    try:
        for name, text in maps.items():
            with open(f"/proc/{process}/{name}", "w") as file:
                file.write(text)
    except OSError:
        return 1
    return 0


def _make_root(plan: dict[str, Any]) -> None:
    """Make a root folder with the paths of the plan, and leave the old one (mount_namespaces(7), pivot_root(2))."""
    with contextlib.suppress(OSError), open("/proc/sys/user/max_user_namespaces", "w") as file:
        file.write("0")  # the owner of a further namespace could mount
    root = plan["root"]
    _call("mount", None, b"/", None, _RECURSIVE | _PRIVATE, None)
    _mount("tmpfs", root, _NO_SETUID, "size=1m,mode=755")
    for path in plan["read"]:
        _bind(path, root)
        _restrict(root + path, _READ_ONLY | _NO_SETUID | _NO_DEVICES, recursive=True)
    for path in filter(os.path.exists, _DEVICES):
        _bind(path, root)
    for path in (plan["home"], "/dev/shm"):
        _mount("tmpfs", root + path, _NO_SETUID | _NO_DEVICES, f"size={plan['file_size']},mode=1777")
    with contextlib.suppress(PermissionError):  # refused in a container that hides parts of its own /proc
        _mount("proc", f"{root}/proc", _READ_ONLY | _NO_SETUID | _NO_DEVICES)
    _restrict(root, _READ_ONLY | _NO_SETUID, recursive=False)
    os.chdir(root)
    _call("pivot_root", b".", b".")
    _call("umount2", b".", _DETACH)  # the old root


def _mount(kind: str, target: str, flags: int, options: str = "") -> None:
    os.makedirs(target, exist_ok=True)
    _call("mount", kind.encode(), target.encode(), kind.encode(), flags, options.encode())


def _bind(path: str, root: str) -> None:
    target = root + path
    os.makedirs(target if os.path.isdir(path) else os.path.dirname(target), exist_ok=True)
    if not os.path.isdir(path):
        with open(target, "a"):
            pass
    _call("mount", path.encode(), target.encode(), None, _BIND | _RECURSIVE, None)


def _restrict(path: str, attributes: int, *, recursive: bool) -> None:
    """Add attributes to mounts, which keep those that they have (mount_setattr(2), Linux 5.12)."""
    request = struct.pack("4Q", attributes, 0, 0, 0)
    _call("syscall", 442, -100, path.encode(), 0x8000 if recursive else 0, request, len(request))


def limit_resources(plan: dict[str, Any]) -> None:
    """Set limits, for each process (getrlimit(2)), that it cannot raise."""
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: plan["seconds"] * (os.cpu_count() or 1),
        resource.RLIMIT_DATA: plan["memory"],
        resource.RLIMIT_FSIZE: plan["file_size"],
        resource.RLIMIT_NPROC: plan["processes"],
    }
    for kind, value in limits.items():
        most = resource.getrlimit(kind)[1]
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(kind, (value, value))


def landlock(read: Iterable[str], listed: str, home: str, *, own_processes: bool) -> None:
    """Allow this process to read some paths and to write to one folder, and nothing else (landlock(7), Linux 5.13).

    It also refuses TCP (since version 4), and abstract sockets and signals to processes outside (since version 6).

    Args:
        read: paths to read.
        listed: a folder to list.
        home: folder to write to.
        own_processes: whether /proc and /dev/shm are those of the sandbox, which may be used.

    Raises:
        OSError: the kernel has no Landlock.
    """
    version = _call("syscall", 444, None, 0, 1)
    every = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1
    of_files = every & (1 | 2 | 4 | 1 << 14 | 1 << 15)  # execute, write, read, truncate, ioctl
    rules = struct.pack("3Q", every, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = _call("syscall", 444, rules, size, 0)
    allowed = {listed: 8, **dict.fromkeys(read, 1 | 4 | 8)}  # execute, read files, list folders
    allowed |= dict.fromkeys(_DEVICES, 2 | 4) | {home: every}
    if own_processes:
        allowed |= {"/proc": 4 | 8, "/dev/shm": every}
    for path, rights in allowed.items():
        if os.path.exists(path):
            descriptor = os.open(path, os.O_PATH)
            rule = struct.pack("=Qi", rights & (every if os.path.isdir(path) else of_files), descriptor)
            _call("syscall", 445, ruleset, 1, rule, 0)
            os.close(descriptor)
    _call("syscall", 446, ruleset, 0)
    os.close(ruleset)


def seccomp(architecture: int, refused: Sequence[int]) -> None:
    """Let some system calls, and all calls of another architecture, fail with EACCES (seccomp(2)).

    Raises:
        OSError: the kernel has no seccomp.
    """
    load, equal, at_least, end = 0x20, 0x15, 0x35, 0x06
    last = len(refused) + 4  # the filter is a program whose jumps are relative; it ends with "allow" and "refuse"
    program = [
        (load, 0, 0, 4),
        (equal, 0, last - 1, architecture),
        (load, 0, 0, 0),
        (at_least, last - 3, 0, 0x40000000),  # x32
        *((equal, len(refused) - i, 0, number) for i, number in enumerate(refused)),
        (end, 0, 0, 0x7FFF0000),
        (end, 0, 0, 0x00050000 | errno.EACCES),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    _call("prctl", _SECCOMP, 2, struct.pack("HxxxxxxQ", len(program), ctypes.addressof(code)))


def _call(name: str, *arguments: int | bytes | None) -> int:
    """Call a function of the C library; a negative result raises OSError."""
    words = [ctypes.c_long(each) if isinstance(each, int) else ctypes.c_char_p(each) for each in arguments]
    result = getattr(_libc, name)(*words)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


if __name__ == "__main__":
    main()
