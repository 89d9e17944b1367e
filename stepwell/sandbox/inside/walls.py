"""The last wall, which a process builds around itself before it runs a candidate: limits of resources, and a filter of system calls.

The filter (seccomp) refuses with EPERM: new processes and programs, sockets, signals to others, debugging, namespaces and mounts, memory
that no limit counts (memfd, System V), keys, io_uring, raising limits. Threads stay allowed. It cannot be taken off again.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FilterUnavailableError", "check", "filter_calls", "limit"]

_NEW = {  # numbers that all machines share
    "pidfd_send_signal": 424, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "pidfd_open": 434, "clone3": 435, "pidfd_getfd": 438, "process_madvise": 440,
    "mount_setattr": 442, "memfd_secret": 447, "process_mrelease": 448,
}  # fmt: skip
_CALLS = {
    "x86_64": (0xC000003E, _NEW | {
        "shmget": 29, "shmat": 30, "socket": 41, "connect": 42, "socketpair": 53, "clone": 56, "fork": 57, "vfork": 58, "execve": 59,
        "kill": 62, "semget": 64, "msgget": 68, "ptrace": 101, "rt_sigqueueinfo": 129, "personality": 135, "pivot_root": 155,
        "setrlimit": 160, "chroot": 161, "mount": 165, "umount2": 166, "init_module": 175, "tkill": 200, "tgkill": 234, "mq_open": 240,
        "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250, "unshare": 272, "rt_tgsigqueueinfo": 297,
        "perf_event_open": 298, "prlimit64": 302, "open_by_handle_at": 304, "setns": 308, "process_vm_readv": 310,
        "process_vm_writev": 311, "kcmp": 312, "finit_module": 313, "memfd_create": 319, "kexec_file_load": 320, "bpf": 321,
        "execveat": 322, "userfaultfd": 323,
    }),
    "aarch64": (0xC00000B7, _NEW | {
        "umount2": 39, "mount": 40, "pivot_root": 41, "chroot": 51, "personality": 92, "unshare": 97, "kexec_load": 104,
        "init_module": 105, "ptrace": 117, "kill": 129, "tkill": 130, "tgkill": 131, "rt_sigqueueinfo": 138, "setrlimit": 164,
        "mq_open": 180, "msgget": 186, "semget": 190, "shmget": 194, "shmat": 196, "socket": 198, "socketpair": 199, "connect": 203,
        "add_key": 217, "request_key": 218, "keyctl": 219, "clone": 220, "execve": 221, "rt_tgsigqueueinfo": 240,
        "perf_event_open": 241, "prlimit64": 261, "open_by_handle_at": 265, "setns": 268, "process_vm_readv": 270,
        "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "memfd_create": 279, "bpf": 280, "execveat": 281,
        "userfaultfd": 282, "kexec_file_load": 294,
    }),
}  # fmt: skip
_CLONE_THREAD = 0x00010000
_X32 = 0x40000000
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _FIRST, _THIRD = 0, 4, 16, 32  # offsets in struct seccomp_data; arguments are 64 bits each, the low half first


class FilterUnavailableError(Exception):
    """The filter of system calls cannot be put on here."""


def check() -> None:
    """Raises `FilterUnavailableError` where `filter_calls` would."""
    machine = os.uname().machine
    if machine not in _CALLS or struct.calcsize("P") != 8:
        raise FilterUnavailableError(
            f"the machine is {machine}; the filter of system calls is written for {' and '.join(_CALLS)} of 64 bits"
        )
    get_filter = 21
    if ctypes.CDLL(None).prctl(get_filter, 0, 0, 0, 0) < 0:
        raise FilterUnavailableError("the kernel is built without filters of system calls (seccomp)")


def limit(memory_bytes: int, cpu_s: int, open_files: int) -> None:
    """Limits of this process and all that it starts. No file can grow: nothing is written to any disk."""
    for what, value in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_NOFILE, open_files),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
    ):
        resource.setrlimit(what, (value, value))
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    deep = 64 * 2**20  # solutions raise the recursion limit
    resource.setrlimit(resource.RLIMIT_STACK, (deep if hard == resource.RLIM_INFINITY else min(deep, hard), hard))


def filter_calls() -> None:
    """Puts the filter on this process (its one thread, and all that it will have).

    Raises:
        FilterUnavailableError: Of another machine than x86_64 and aarch64, or the kernel refuses.
    """
    check()
    program = _program(*_CALLS[os.uname().machine])

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]

    libc = ctypes.CDLL(None, use_errno=True)
    ready = Program(len(program) // 8, program)
    set_filter, no_new_privileges, mode_filter = 22, 38, 2
    if libc.prctl(no_new_privileges, 1, 0, 0, 0) or libc.prctl(set_filter, mode_filter, ctypes.byref(ready), 0, 0):
        raise FilterUnavailableError(f"the kernel refuses the filter of system calls: {os.strerror(ctypes.get_errno())}")


def _program(architecture: int, calls: Mapping[str, int]) -> bytes:
    """Berkeley packet filter code: a list of (code, jump if true, jump if false, value)."""
    refuse = (_RETURN, 0, 0, _REFUSE | errno.EPERM)
    lines = [(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)]
    lines += [(_AT_LEAST, 0, 1, _X32), refuse]
    special = {
        # A library that is told there is no clone3 uses clone, whose flags can be seen.
        "clone3": [(_RETURN, 0, 0, _REFUSE | errno.ENOSYS)],
        "clone": [(_LOAD, 0, 0, _FIRST), (_ANY_BIT, 1, 0, _CLONE_THREAD), refuse, (_RETURN, 0, 0, _ALLOW)],
        "tgkill": [(_LOAD, 0, 0, _FIRST), (_EQUAL, 1, 0, os.getpid()), refuse, (_RETURN, 0, 0, _ALLOW)],
        "prlimit64": [
            *[(_LOAD, 0, 0, _THIRD), (_EQUAL, 1, 0, 0), refuse],
            *[(_LOAD, 0, 0, _THIRD + 4), (_EQUAL, 1, 0, 0), refuse, (_RETURN, 0, 0, _ALLOW)],
        ],
    }
    for name, number in calls.items():
        then = special.get(name, [refuse])
        lines += [(_EQUAL, 0, len(then), number), *then]
    lines.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *line) for line in lines)
