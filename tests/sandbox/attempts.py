"""What a candidate might try against its host. Each function gets the facts of the host, and gives or raises something.

What it gives is what it got hold of. The same source runs behind the walls, where each must raise, and in a plain interpreter, where each
must succeed: an attempt that fails everywhere would prove nothing. Names that begin with `maybe_` depend on the host's own rules (a
container may refuse them too), and need only fail inside.
"""
# ruff: noqa: PTH108, PTH118, PTH123, PTH208, PTH211

import ctypes
import os
import socket
import subprocess
import sys

LIBC = ctypes.CDLL(None, use_errno=True)


def _check(result, what):
    if result == -1:
        raise OSError(ctypes.get_errno(), what)
    return f"{what}: {result}"


def read_a_file(host):
    with open(host["secret"]) as file:
        return file.read()


def read_through_a_link(host):
    link = os.path.join(host["folder"], f"link-{os.getpid()}")
    os.symlink(host["secret"], link)
    with open(link) as file:
        return file.read()


def list_a_folder(host):
    return os.listdir(host["folder"])


def read_the_password_file(host):
    with open("/etc/passwd") as file:
        return file.read()


def read_this_repository(host):
    with open(host["repository"]) as file:
        return file.read()


def read_the_environment(host):
    return os.environ["STEPWELL_SECRET"]


def read_the_environment_of_the_parent(host):
    with open(f"/proc/{host['pid']}/environ", "rb") as file:
        return file.read()


def read_the_command_of_the_parent(host):
    with open(f"/proc/{host['pid']}/cmdline", "rb") as file:
        return file.read()


def maybe_read_the_memory_of_the_parent(host):
    with open(f"/proc/{host['pid']}/maps") as maps, open(f"/proc/{host['pid']}/mem", "rb") as memory:
        memory.seek(int(maps.readline().split("-")[0], 16))
        return memory.read(16)


def maybe_read_the_memory_of_the_parent_by_a_call(host):
    class Part(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    with open(f"/proc/{host['pid']}/maps") as maps:
        base = int(maps.readline().split("-")[0], 16)
    here = Part(ctypes.cast(ctypes.create_string_buffer(16), ctypes.c_void_p), 16)
    return _check(LIBC.process_vm_readv(host["pid"], ctypes.byref(here), 1, ctypes.byref(Part(base, 16)), 1, 0), "process_vm_readv")


def connect(host):
    with socket.create_connection(("127.0.0.1", host["port"]), timeout=1) as line:
        return line.recv(16)


def connect_to_a_unix_socket(host):
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(host["socket"])
        return line.recv(16)


def send_a_datagram(host):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        return line.sendto(b"hello", ("127.0.0.1", host["port"]))


def listen(host):
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        return line.getsockname()


def write_a_file(host):
    path = os.path.join(host["folder"], "written")
    with open(path, "w") as file:
        file.write("I was here")
    return path


def write_to_the_temporary_folder(host):
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        file.write(b"x")
        file.flush()
        return file.name


def write_to_shared_memory(host):
    path = f"/dev/shm/stepwell-{os.getpid()}"
    with open(path, "w") as file:
        file.write("x")
    os.unlink(path)
    return path


def write_to_memory_without_limit(host):
    return os.write(os.memfd_create("x"), b"x" * 2**20)


def take_memory_that_no_limit_counts(host):
    return _check(LIBC.shmget(0, 2**20, 0o1600), "shmget")


def fork(host):
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return f"process {child}"


def leave_a_daemon(host):
    """Twice forked, of a session of its own; writes a mark when everybody has gone."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            import time

            time.sleep(0.3)
            with open(os.path.join(host["folder"], "daemon"), "w") as file:
                file.write("still here")
        os._exit(0)
    os.wait()
    return "a daemon"


def spawn(host):
    return os.waitpid(os.posix_spawn(sys.executable, [sys.executable, "-S", "-c", ""], {}), 0)


def run_a_program(host):
    return subprocess.run(["/bin/true"], check=True).returncode


def run_a_shell(host):
    return _check(-1 if os.system("true") else 0, "system")


def signal_the_parent(host):
    os.kill(host["pid"], 0)
    return "reached"


def signal_a_group(host):
    os.killpg(host["group"], 0)
    return "reached"


def follow_a_process(host):
    return os.pidfd_open(host["pid"])


def ask_to_be_traced(host):
    return _check(LIBC.ptrace(0, 0, 0, 0), "ptrace")


def lift_a_limit(host):
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return "set"


def maybe_make_a_name_space(host):
    return _check(LIBC.unshare(0x10000000), "unshare")


def maybe_mount(host):
    return _check(LIBC.mount(b"none", host["folder"].encode(), b"tmpfs", 0, None), "mount")


def maybe_keep_a_key(host):
    number = {"x86_64": 248, "aarch64": 217}[os.uname().machine]
    return _check(LIBC.syscall(number, b"user", b"stepwell", b"x", 1, -1), "add_key")


def maybe_use_io_uring(host):
    return _check(LIBC.syscall(425, 4, ctypes.create_string_buffer(256)), "io_uring_setup")


def import_what_is_installed_here(host):
    sys.path.append(host["packages"])
    import pytest

    return pytest.__version__


ATTEMPTS = [
    name for name, value in list(globals().items()) if callable(value) and value.__module__ == __name__ and not name.startswith("_")
]


def try_all(host):
    """Name -> what came of it: ("got", what) or ("refused", error)."""
    found = {}
    for name in ATTEMPTS:
        try:
            found[name] = ("got", str(globals()[name](host))[:100])
        except Exception as error:
            found[name] = ("refused", f"{type(error).__name__}: {error}")
    return found
