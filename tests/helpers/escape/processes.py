"""Reach other processes, namespaces, the kernel and the terminal."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import resource
import signal
import struct
import subprocess
import termios
import threading

from tests.helpers.escape.attempts import Arena, attempt, libc, say, syscall

PTRACE, PROCESS_VM_READV, PROCESS_VM_WRITEV, PIDFD_OPEN, PIDFD_GETFD, PIDFD_SEND_SIGNAL = 101, 310, 311, 434, 438, 424
CLONE, CLONE3, UNSHARE, SETNS, MOUNT, UMOUNT2, PIVOT_ROOT, CHROOT = 56, 435, 272, 308, 165, 166, 155, 161
OPEN_TREE, MOVE_MOUNT, FSOPEN, FSCONFIG, FSMOUNT, MOUNT_SETATTR = 428, 429, 430, 431, 432, 442
IO_URING_SETUP, BPF, PERF_EVENT_OPEN, USERFAULTFD, KEYCTL, ADD_KEY = 425, 321, 298, 323, 250, 248
SHMGET, SHMAT, MSGGET, MSGRCV, KCMP, FANOTIFY_INIT, PROCESS_MADVISE = 29, 30, 68, 70, 312, 300, 440
PTRACE_ATTACH, PTRACE_SEIZE, PTRACE_PEEKDATA = 16, 0x4206, 2
NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = (
    0x20000,
    0x2000000,
    0x4000000,
    0x8000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
REMOUNT, BIND, PRIVATE, RECURSIVE = 0x20, 0x1000, 0x40000, 0x4000
TIOCSTI, TIOCLINUX = 0x5412, 0x541C


# The engine's process.


@attempt(needs="ptrace")
def trace_victim(arena: Arena) -> None:
    syscall(PTRACE, PTRACE_SEIZE, arena.victim, 0, 0)
    arena.escaped()


@attempt(needs="ptrace")
def attach_to_victim(arena: Arena) -> None:
    syscall(PTRACE, PTRACE_ATTACH, arena.victim, 0, 0)
    arena.escaped()


@attempt()
def read_victim_environment(arena: Arena) -> None:
    arena.show(f"/proc/{arena.victim}/environ")


@attempt(needs="ptrace")
def read_victim_memory(arena: Arena) -> None:
    start, size = arena.config["victim_secret"]
    with open(f"/proc/{arena.victim}/mem", "rb", buffering=0) as memory:
        memory.seek(start)
        say(memory.read(size))


@attempt(needs="ptrace")
def read_victim_memory_by_call(arena: Arena) -> None:
    start, size = arena.config["victim_secret"]
    buffer = ctypes.create_string_buffer(size)
    local = struct.pack("@PN", ctypes.addressof(buffer), size)
    syscall(PROCESS_VM_READV, arena.victim, local, 1, struct.pack("@PN", start, size), 1, 0)
    say(buffer.raw)


@attempt(needs="ptrace")
def write_victim_memory(arena: Arena) -> None:
    start, _ = arena.config["victim_scratch"]
    buffer = ctypes.create_string_buffer(b"EVIL")
    local = struct.pack("@PN", ctypes.addressof(buffer), 4)
    syscall(PROCESS_VM_WRITEV, arena.victim, local, 1, struct.pack("@PN", start, 4), 1, 0)
    arena.escaped()


@attempt()
def read_victim_descriptors(arena: Arena) -> None:
    for number in os.listdir(f"/proc/{arena.victim}/fd"):
        with contextlib.suppress(OSError):
            descriptor = os.open(f"/proc/{arena.victim}/fd/{number}", os.O_RDONLY | os.O_NONBLOCK)
            say(os.read(descriptor, 1000))


@attempt(needs="ptrace")
def take_victim_descriptor(arena: Arena) -> None:
    process = syscall(PIDFD_OPEN, arena.victim, 0)
    descriptor = syscall(PIDFD_GETFD, process, arena.config["victim_descriptor"], 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    say(os.read(descriptor, 1000))


@attempt(needs="ptrace")
def take_over_process_without_filter(arena: Arena) -> None:
    """Code in another process of the sandbox would run with that process's rights."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, StopIteration):
            with open(f"/proc/{pid}/status") as status:
                has_filter = next(line for line in status if line.startswith("Seccomp:")).split()[1] != "0"
            with open(f"/proc/{pid}/maps") as maps:
                start = int(next(line for line in maps if " r-xp " in line).partition("-")[0], 16)
            with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
                memory.seek(start)
                code = memory.read(4)
                memory.seek(start)
                memory.write(code)
            if not has_filter and int(pid) != os.getpid():
                arena.escaped(pid)


@attempt()
def list_victim_maps(arena: Arena) -> None:
    with open(f"/proc/{arena.victim}/maps") as maps:
        say("ESCAPED" if maps.read() else "", arena.name)


@attempt()
def signal_victim(arena: Arena) -> None:
    """The victim prints the number of what it gets."""
    os.kill(arena.victim, arena.signal)


@attempt()
def signal_victim_by_thread(arena: Arena) -> None:
    libc.syscall(234, arena.victim, arena.victim, arena.signal)  # tgkill


@attempt()
def signal_victim_by_descriptor(arena: Arena) -> None:
    syscall(PIDFD_SEND_SIGNAL, syscall(PIDFD_OPEN, arena.victim, 0), arena.signal, 0, 0)


@attempt()
def signal_victim_by_queue(arena: Arena) -> None:
    libc.sigqueue(arena.victim, arena.signal, ctypes.c_void_p(1))


@attempt()
def signal_victim_group(arena: Arena) -> None:
    os.killpg(arena.victim, arena.signal)


@attempt()
def signal_victim_by_owner_of_file(arena: Arena) -> None:
    """The kernel sends a signal for whoever asked for it."""
    reader, writer = os.pipe()
    fcntl.fcntl(reader, fcntl.F_SETOWN, arena.victim)
    fcntl.fcntl(reader, 10, arena.signal)  # F_SETSIG
    fcntl.fcntl(reader, fcntl.F_SETFL, os.O_ASYNC)
    os.write(writer, b"x")


@attempt()
def limit_victim(arena: Arena) -> None:
    """A limit of the engine's process, lowered by one."""
    soft, hard = resource.prlimit(arena.victim, resource.RLIMIT_NOFILE)
    resource.prlimit(arena.victim, resource.RLIMIT_NOFILE, (soft - 1, hard))
    arena.escaped()


@attempt()
def change_victim_score(arena: Arena) -> None:
    with open(f"/proc/{arena.victim}/oom_score_adj", "w") as file:
        file.write("900")
    arena.escaped()


@attempt(needs="ptrace")
def compare_with_victim(arena: Arena) -> None:
    syscall(KCMP, os.getpid(), arena.victim, 1, 0, 0)
    arena.escaped()


@attempt(needs="root")
def advise_victim(arena: Arena) -> None:
    process = syscall(PIDFD_OPEN, arena.victim, 0)
    start, _ = arena.config["victim_scratch"]
    syscall(PROCESS_MADVISE, process, struct.pack("@PN", start // 4096 * 4096, 4096), 1, 20, 0)  # MADV_COLD
    arena.escaped()


@attempt()
def inject_environment_into_shells(arena: Arena) -> None:
    """A file that the next shell of the user would read, through the variable that the engine gave us."""
    for name in ("BASH_ENV", "ENV", "CLAUDE_ENV_FILE"):
        if path := os.environ.get(name):
            arena.write(path)
            arena.escaped(path)
    if not arena.config["sandboxed"]:
        arena.escaped()


# Objects that processes share.


@attempt()
def read_shared_segment(arena: Arena) -> None:
    segment = syscall(SHMGET, arena.config["segment_key"], 0, 0)
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(segment, None, 0o10000)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "shmat")
    say(ctypes.string_at(address, 100))


@attempt(needs="mqueue")
def read_message_queue(arena: Arena) -> None:
    queue = syscall(240, arena.config["queue"].encode(), os.O_RDONLY | os.O_NONBLOCK, 0, 0)
    arena.escaped(queue)


@attempt(needs="keys")
def use_keyring(arena: Arena) -> None:
    """The user's keyring is shared with the engine."""
    syscall(ADD_KEY, b"user", arena.name.encode(), b"x", 1, -4)  # KEY_SPEC_USER_KEYRING
    arena.escaped()


@attempt(needs="keys")
def read_keyring(arena: Arena) -> None:
    syscall(KEYCTL, 0, -4, 0)  # KEYCTL_GET_KEYRING_ID
    arena.escaped()


# Namespaces and mounts. Whoever creates one gets its capabilities.


def enter(arena: Arena, flags: int) -> None:
    syscall(UNSHARE, flags)
    arena.escaped(hex(flags))


@attempt(needs="user namespaces")
def new_user_namespace(arena: Arena) -> None:
    enter(arena, NEWUSER)


@attempt(needs="user namespaces")
def new_user_and_mount_namespace(arena: Arena) -> None:
    enter(arena, NEWUSER | NEWNS)


@attempt(needs="user namespaces")
def new_user_and_network_namespace(arena: Arena) -> None:
    enter(arena, NEWUSER | NEWNET)


@attempt(needs="root")
def new_mount_namespace(arena: Arena) -> None:
    enter(arena, NEWNS)


@attempt(needs="root")
def new_pid_namespace(arena: Arena) -> None:
    enter(arena, NEWPID)


@attempt(needs="root")
def new_time_namespace(arena: Arena) -> None:
    enter(arena, 0x80)


@attempt(needs="user namespaces")
def new_user_namespace_by_clone(arena: Arena) -> None:
    child = syscall(CLONE, NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    arena.escaped(child)


@attempt(needs="user namespaces")
def new_user_namespace_by_clone3(arena: Arena) -> None:
    arguments = struct.pack("@QQQQQQQQ", NEWUSER, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    child = syscall(CLONE3, arguments, len(arguments))
    if child == 0:
        os._exit(0)
    arena.escaped(child)


@attempt(needs="user namespaces")
def namespace_by_program(arena: Arena) -> None:
    done = subprocess.run(["unshare", "-Ur", "id", "-u"], capture_output=True, text=True, check=True)
    arena.escaped(done.stdout)


@attempt(needs="root")
def enter_namespace_of_init(arena: Arena) -> None:
    for kind in ("mnt", "net", "pid", "user"):
        with contextlib.suppress(OSError):
            syscall(SETNS, os.open(f"/proc/1/ns/{kind}", os.O_RDONLY), 0)
            arena.escaped(kind)


@attempt(needs="root")
def enter_namespace_of_victim(arena: Arena) -> None:
    syscall(SETNS, syscall(PIDFD_OPEN, arena.victim, 0), NEWNS | NEWNET)
    arena.escaped()


@attempt(needs="root")
def mount_memory(arena: Arena) -> None:
    os.mkdir(arena.own())
    syscall(MOUNT, b"none", arena.own().encode(), b"tmpfs", 0, b"")
    arena.escaped()
    syscall(UMOUNT2, arena.own().encode(), 2)


@attempt(needs="root")
def bind_outside_into_workspace(arena: Arena) -> None:
    os.mkdir(arena.own())
    syscall(MOUNT, os.path.dirname(arena.file()).encode(), arena.own().encode(), b"", BIND, 0)
    try:
        arena.write(os.path.join(arena.own(), os.path.basename(arena.file())))
    finally:
        syscall(UMOUNT2, arena.own().encode(), 2)


@attempt()
def remount_for_writing(arena: Arena) -> None:
    """In the control there is nothing to remount, and writing works."""
    for path in ("/", os.path.dirname(arena.file()), arena.file()):
        with contextlib.suppress(OSError):
            syscall(MOUNT, b"none", path.encode(), b"", REMOUNT | BIND, 0)
    arena.write(arena.file())


@attempt()
def unmount_and_write(arena: Arena) -> None:
    if arena.config["sandboxed"]:
        for path in ("/", "/tmp", arena.workspace, os.path.dirname(arena.file())):
            with contextlib.suppress(OSError):
                syscall(UMOUNT2, path.encode(), 2)
    arena.write(arena.file())


@attempt(needs="root")
def clone_mount_tree(arena: Arena) -> None:
    syscall(OPEN_TREE, -100, b"/", 1)  # OPEN_TREE_CLONE
    arena.escaped()


@attempt(needs="root")
def open_file_system(arena: Arena) -> None:
    syscall(FSOPEN, b"tmpfs", 0)
    arena.escaped()


@attempt()
def change_mount_attributes(arena: Arena) -> None:
    with contextlib.suppress(OSError):
        syscall(MOUNT_SETATTR, -100, b"/", 0x8000, struct.pack("@QQQQ", 0, 1, 0, 0), 32)  # clear read-only
    arena.write(arena.file())


@attempt(needs="root")
def change_root(arena: Arena) -> None:
    os.mkdir(arena.own())
    syscall(CHROOT, arena.own().encode())
    arena.escaped()


@attempt()
def leave_by_parents_of_root(arena: Arena) -> None:
    """The classic way out of a changed root."""
    outside = os.open("/", os.O_RDONLY)
    with contextlib.suppress(OSError):
        os.mkdir(arena.own())
        os.chroot(arena.own())
    os.fchdir(outside)
    for _ in range(40):
        os.chdir("..")
    arena.write(arena.file().lstrip("/"))


# Privileges.


@attempt(needs="setuid program")
def run_setuid_program(arena: Arena) -> None:
    done = subprocess.run([arena.config["setuid"], "-u"], capture_output=True, text=True, check=True)
    arena.escaped(done.stdout) if done.stdout.strip() == "0" else None


@attempt(needs="root")
def make_setuid_program(arena: Arena) -> None:
    """A file outside that belongs to root and runs as root."""
    path = arena.file()
    os.chmod(path, 0o4755)


@attempt(needs="root")
def become_other_user(arena: Arena) -> None:
    os.setgroups([4242])
    os.setresuid(4242, 4242, 4242)
    arena.escaped()


@attempt(needs="root")
def regain_capabilities(arena: Arena) -> None:
    with open("/proc/self/status") as status:
        held = next(line for line in status if line.startswith("CapEff"))
    if int(held.split()[1], 16):
        arena.escaped(held)


@attempt()
def gain_by_exec(arena: Arena) -> None:
    """Without no_new_privs, a set-user-id program could run."""
    with open("/proc/self/status") as status:
        found = next(line for line in status if line.startswith("NoNewPrivs"))
    if found.split()[1] != "1":
        arena.escaped(found)


# Parts of the kernel with a long list of bugs.


@attempt(needs="io_uring")
def open_ring(arena: Arena) -> None:
    syscall(IO_URING_SETUP, 1, bytes(120))
    arena.escaped()


@attempt(needs="root")
def load_bpf(arena: Arena) -> None:
    syscall(BPF, 0, struct.pack("@IIIII", 2, 4, 4, 1, 0) + bytes(100), 72)
    arena.escaped()


@attempt(needs="root")
def count_events_of_victim(arena: Arena) -> None:
    attributes = struct.pack("@IIQ", 1, 112, 0) + bytes(96)  # a software clock
    syscall(PERF_EVENT_OPEN, attributes, arena.victim, -1, -1, 0)
    arena.escaped()


@attempt(needs="userfaultfd")
def handle_page_faults(arena: Arena) -> None:
    syscall(USERFAULTFD, 0)
    arena.escaped()


@attempt(needs="root")
def watch_file_system(arena: Arena) -> None:
    syscall(FANOTIFY_INIT, 0, 0)
    arena.escaped()


@attempt(needs="root")
def read_kernel_log(arena: Arena) -> None:
    if libc.klogctl(3, ctypes.create_string_buffer(100), 100) > 0:
        arena.escaped()


# The terminal of the user.


@attempt()
def write_to_terminal(arena: Arena) -> None:
    arena.write(arena.terminal, os.O_WRONLY | os.O_NOCTTY)


@attempt()
def open_controlling_terminal(arena: Arena) -> None:
    if not arena.config["sandboxed"]:
        os.open(arena.terminal, os.O_RDWR)  # a session leader gets it
    with open("/dev/tty", "w") as terminal:
        terminal.write("changed by " + arena.name)


def type_into_terminal(arena: Arena, number: int) -> None:
    terminal = os.open(arena.terminal, os.O_RDWR)
    for letter in arena.name + "\n":
        if libc.ioctl(terminal, ctypes.c_ulong(number), letter.encode()) != 0:
            raise OSError(ctypes.get_errno(), "TIOCSTI")


@attempt(needs="tiocsti")
def type_commands(arena: Arena) -> None:
    type_into_terminal(arena, TIOCSTI)


@attempt(needs="tiocsti")
def type_commands_with_high_bits(arena: Arena) -> None:
    """The kernel reads 32 bits of the request, as in CVE-2019-7303."""
    type_into_terminal(arena, TIOCSTI | 1 << 32)


@attempt()
def steal_terminal_settings(arena: Arena) -> None:
    terminal = os.open(arena.terminal, os.O_RDWR | os.O_NOCTTY)
    attributes = termios.tcgetattr(terminal)
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)
    arena.escaped()


@attempt()
def type_through_own_descriptors(arena: Arena) -> None:
    """If a standard stream is the terminal, its input queue can be filled."""
    for number in (0, 1, 2):
        if os.isatty(number):
            arena.escaped(number)
    if not arena.config["sandboxed"]:
        arena.escaped()


# Races against the moment when something is checked.


@attempt()
def race_for_victim_memory(arena: Arena) -> None:
    """A process identifier that is reused: open the folder of a process that ends, and read another."""
    folder = os.open(f"/proc/{arena.victim}", os.O_RDONLY)
    descriptor = os.open("environ", os.O_RDONLY, dir_fd=folder)
    say(os.read(descriptor, 1 << 16))


@attempt()
def outlive_sandbox(arena: Arena) -> None:
    """A process that leaves its session and its parent must end with the sandbox."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            os.execv("/bin/sleep", ["/bin/sleep", "600.0" + arena.config["mark"]])
        os._exit(0)


@attempt()
def execute_from_memory(arena: Arena) -> None:
    """A program without a file runs under the same rules."""
    memory = os.memfd_create("program")
    with open("/bin/sh", "rb") as shell:
        os.write(memory, shell.read())
    subprocess.run(
        [f"/proc/self/fd/{memory}", "-c", f"echo changed > '{arena.file()}'"], pass_fds=[memory], check=False
    )


@attempt()
def write_from_thread(arena: Arena) -> None:
    """A restriction of one thread would not hold for others."""
    thread = threading.Thread(target=lambda: arena.write(arena.file()))
    thread.start()
    thread.join()


@attempt()
def write_by_executable_page(arena: Arena) -> None:
    """Machine code that makes the call itself."""
    path = arena.file().encode() + b"\0"
    memory = mmap.mmap(-1, 8192, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    # mov rdi, path; mov esi, O_WRONLY|O_TRUNC; xor edx, edx; mov eax, 2 (open); syscall; ret
    code = b"\x48\xbf" + struct.pack("<Q", address + 4096) + b"\xbe\x01\x02\0\0\x31\xd2\xb8\x02\0\0\0\x0f\x05\xc3"
    memory[: len(code)] = code
    memory[4096 : 4096 + len(path)] = path
    ctypes.CFUNCTYPE(ctypes.c_long)(address)()
