"""Write outside, and read what is hidden."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import stat
import subprocess
import sys
import threading

from tests.helpers.escape.attempts import Arena, attempt, libc, say, syscall

RENAMEAT2, OPEN_BY_HANDLE_AT, NAME_TO_HANDLE_AT, FCHMODAT2 = 316, 304, 303, 452
AT_FDCWD, RENAME_EXCHANGE = -100, 2
RACES = 2000
"""How often a race is tried."""


# Writing. In the control the canary is changed; in the sandbox the last step must fail.


@attempt()
def write_new_file(arena: Arena) -> None:
    arena.write(arena.new())


@attempt()
def write_existing_file(arena: Arena) -> None:
    arena.write(arena.file())


@attempt()
def append_to_file(arena: Arena) -> None:
    arena.write(arena.file(), os.O_WRONLY | os.O_APPEND)


@attempt()
def truncate_by_path(arena: Arena) -> None:
    os.truncate(arena.file(), 0)


@attempt()
def truncate_by_reading(arena: Arena) -> None:
    os.close(os.open(arena.file(), os.O_RDONLY | os.O_TRUNC))


@attempt()
def remove_file(arena: Arena) -> None:
    os.unlink(arena.file())


@attempt()
def move_file_away(arena: Arena) -> None:
    os.rename(arena.file(), arena.file() + ".moved")


@attempt()
def move_file_into_workspace(arena: Arena) -> None:
    os.rename(arena.file(), arena.own())


@attempt()
def replace_by_own_file(arena: Arena) -> None:
    os.rename(arena.own_file(), arena.file())


@attempt()
def exchange_with_own_file(arena: Arena) -> None:
    syscall(RENAMEAT2, AT_FDCWD, arena.own_file().encode(), AT_FDCWD, arena.file().encode(), RENAME_EXCHANGE)


@attempt()
def make_folder(arena: Arena) -> None:
    os.mkdir(arena.new())


@attempt()
def remove_folder(arena: Arena) -> None:
    os.rmdir(arena.folder())


@attempt()
def make_symlink(arena: Arena) -> None:
    os.symlink("/etc/passwd", arena.new())


@attempt()
def make_fifo(arena: Arena) -> None:
    os.mkfifo(arena.new())


@attempt()
def make_hard_link_outside(arena: Arena) -> None:
    os.link(arena.own_file(), arena.new())


@attempt()
def write_through_hard_link(arena: Arena) -> None:
    os.link(arena.file(), arena.own())
    arena.write(arena.own())


@attempt()
def write_through_symlink(arena: Arena) -> None:
    os.symlink(arena.file(), arena.own())
    arena.write(arena.own())


@attempt()
def create_through_dangling_symlink(arena: Arena) -> None:
    os.symlink(arena.new(), arena.own())
    arena.write(arena.own())


@attempt()
def write_through_symlinked_folder(arena: Arena) -> None:
    os.symlink(os.path.dirname(arena.file()), arena.own())
    arena.write(os.path.join(arena.own(), os.path.basename(arena.file())))


@attempt()
def write_through_parents(arena: Arena) -> None:
    arena.write("../" * 40 + arena.file())


@attempt()
def write_through_proc_root(arena: Arena) -> None:
    arena.write("/proc/self/root" + arena.file())


@attempt()
def write_through_proc_cwd(arena: Arena) -> None:
    arena.write("/proc/self/cwd/" + "../" * 40 + arena.file())


@attempt(needs="root")
def write_through_init_root(arena: Arena) -> None:
    arena.write("/proc/1/root" + arena.file())


@attempt()
def write_through_victim_root(arena: Arena) -> None:
    arena.write(f"/proc/{arena.victim}/root" + arena.file())


@attempt()
def write_through_victim_cwd(arena: Arena) -> None:
    arena.write(f"/proc/{arena.victim}/cwd/" + os.path.basename(arena.file()))


@attempt()
def write_beneath_opened_folder(arena: Arena) -> None:
    folder = os.open(os.path.dirname(arena.file()), os.O_RDONLY | os.O_DIRECTORY)
    arena.write(f"/proc/self/fd/{folder}/" + os.path.basename(arena.file()))


@attempt()
def reopen_for_writing(arena: Arena) -> None:
    descriptor = os.open(arena.file(), os.O_RDONLY)
    arena.write(f"/proc/self/fd/{descriptor}")


@attempt()
def reopen_path_descriptor(arena: Arena) -> None:
    descriptor = os.open(arena.file(), os.O_PATH)
    arena.write(f"/dev/fd/{descriptor}")


@attempt()
def write_by_memory_map(arena: Arena) -> None:
    descriptor = os.open(arena.file(), os.O_RDWR)
    with mmap.mmap(descriptor, 4) as memory:
        memory[:4] = b"EVIL"


@attempt()
def change_mode(arena: Arena) -> None:
    os.chmod(arena.file(), 0o777)


@attempt()
def change_mode_by_descriptor(arena: Arena) -> None:
    os.fchmod(os.open(arena.file(), os.O_RDONLY), 0o777)


@attempt(needs="fchmodat2")
def change_mode_by_new_call(arena: Arena) -> None:
    syscall(FCHMODAT2, AT_FDCWD, arena.file().encode(), 0o777, 0)


@attempt()
def change_mode_through_proc(arena: Arena) -> None:
    os.chmod(f"/proc/self/fd/{os.open(arena.file(), os.O_PATH)}", 0o777)


@attempt()
def change_mode_beneath_opened_folder(arena: Arena) -> None:
    folder = os.open(os.path.dirname(arena.file()), os.O_PATH)
    os.chmod(os.path.basename(arena.file()), 0o777, dir_fd=folder)


@attempt()
def change_mode_through_symlink(arena: Arena) -> None:
    os.symlink(arena.file(), arena.own())
    os.chmod(arena.own(), 0o777)


@attempt()
def change_times_of_folder(arena: Arena) -> None:
    os.chmod(arena.folder(), 0o777)
    os.utime(arena.folder(), (1, 1))


@attempt()
def change_times_by_old_call(arena: Arena) -> None:
    syscall(132, arena.file().encode(), bytes(16))


@attempt(needs="root")
def change_owner(arena: Arena) -> None:
    os.chown(arena.file(), 12345, 12345)


@attempt()
def change_times(arena: Arena) -> None:
    os.utime(arena.file(), (1, 1))


@attempt(needs="attributes")
def set_attribute(arena: Arena) -> None:
    os.setxattr(arena.file(), "user.escaped", b"1")


@attempt()
def write_in_shared_temp(arena: Arena) -> None:
    arena.write(arena.file("temp"))


@attempt()
def create_in_shared_temp(arena: Arena) -> None:
    arena.write(arena.new("temp"))


@attempt()
def create_in_shared_memory(arena: Arena) -> None:
    arena.write(arena.new("shm"))


@attempt()
def change_shell_profile(arena: Arena) -> None:
    arena.write(os.path.join(arena.config["home"], ".bashrc"), os.O_WRONLY | os.O_APPEND)


@attempt()
def create_shell_profile(arena: Arena) -> None:
    arena.write(os.path.join(arena.config["home"], ".zshenv"))


@attempt()
def add_authorized_key(arena: Arena) -> None:
    arena.write(os.path.join(arena.config["home"], ".ssh", "authorized_keys"))


@attempt()
def change_engine_settings(arena: Arena) -> None:
    arena.write(os.path.join(arena.config["home"], ".claude", "settings.json"))


@attempt(needs="root")
def open_system_file(arena: Arena) -> None:
    os.close(os.open("/etc/hostname", os.O_WRONLY))
    arena.escaped()


@attempt(needs="root")
def create_in_system_folder(arena: Arena) -> None:
    os.close(os.open("/usr/lib", os.O_TMPFILE | os.O_WRONLY, 0o600))
    arena.escaped()


@attempt(needs="root")
def open_core_pattern(arena: Arena) -> None:
    os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))
    arena.escaped()


@attempt(needs="root")
def open_kernel_setting(arena: Arena) -> None:
    os.close(os.open("/proc/sys/vm/overcommit_memory", os.O_WRONLY))
    arena.escaped()


@attempt(needs="root")
def open_sysfs_setting(arena: Arena) -> None:
    os.close(os.open("/sys/kernel/mm/transparent_hugepage/enabled", os.O_WRONLY))
    arena.escaped()


@attempt(needs="root")
def make_control_group(arena: Arena) -> None:
    os.mkdir("/sys/fs/cgroup/" + arena.name)
    arena.escaped()
    os.rmdir("/sys/fs/cgroup/" + arena.name)


@attempt(needs="root")
def make_device(arena: Arena) -> None:
    os.mknod(arena.own(), stat.S_IFCHR | 0o666, os.makedev(1, 5))
    with open(arena.own(), "rb") as device:
        arena.escaped(device.read(1))


@attempt(needs="root")
def open_kernel_memory(arena: Arena) -> None:
    for path in ("/dev/mem", "/dev/kmem", "/proc/kcore", "/dev/port"):
        with contextlib.suppress(OSError):
            os.close(os.open(path, os.O_RDONLY))
            arena.escaped(path)


@attempt(needs="root")
def open_disk(arena: Arena) -> None:
    with open("/proc/partitions") as partitions:
        lines = partitions.read().splitlines()[2:]
    for line in lines:
        with contextlib.suppress(OSError):
            os.close(os.open("/dev/" + line.split()[3], os.O_RDONLY))
            arena.escaped(line)


@attempt(needs="root")
def open_host_file_by_handle(arena: Arena) -> None:
    """As in the container escape "shocker"."""
    handle = ctypes.create_string_buffer(struct_file_handle(), 8 + 128)
    mount = ctypes.c_int()
    path = arena.secret("key").encode()
    if libc.syscall(NAME_TO_HANDLE_AT, AT_FDCWD, path, handle, ctypes.byref(mount), 0) != 0:
        raise OSError(ctypes.get_errno(), "name_to_handle_at")
    folder = os.open(os.path.dirname(arena.secret("key")), os.O_RDONLY)
    found = libc.syscall(OPEN_BY_HANDLE_AT, folder, handle, os.O_RDONLY)
    if found < 0:
        raise OSError(ctypes.get_errno(), "open_by_handle_at")
    say(os.read(found, 200))


def struct_file_handle() -> bytes:
    return (128).to_bytes(4, sys.byteorder) + bytes(4)


# Reading. The output must not have the secret.


@attempt()
def read_ssh_key(arena: Arena) -> None:
    arena.show(arena.secret("key"))


@attempt()
def read_cloud_credentials(arena: Arena) -> None:
    arena.show(arena.secret("cloud"))


@attempt()
def read_engine_credentials(arena: Arena) -> None:
    arena.show(arena.secret("engine"))


@attempt()
def read_denied_file(arena: Arena) -> None:
    arena.show(arena.secret("denied"))


@attempt()
def read_file_in_denied_folder(arena: Arena) -> None:
    arena.show(arena.secret("denied_folder"))


@attempt()
def read_denied_through_proc_root(arena: Arena) -> None:
    arena.show("/proc/self/root" + arena.secret("denied"))


@attempt()
def read_denied_through_victim_root(arena: Arena) -> None:
    arena.show(f"/proc/{arena.victim}/root" + arena.secret("denied"))


@attempt(needs="root")
def read_denied_through_init_root(arena: Arena) -> None:
    arena.show("/proc/1/root" + arena.secret("denied"))


@attempt()
def read_denied_through_symlink(arena: Arena) -> None:
    os.symlink(arena.secret("denied"), arena.own())
    arena.show(arena.own())


@attempt()
def read_denied_through_hard_link(arena: Arena) -> None:
    os.link(arena.secret("denied"), arena.own())
    arena.show(arena.own())


@attempt()
def read_denied_after_moving_its_folder(arena: Arena) -> None:
    folder = os.path.dirname(arena.secret("denied"))
    os.rename(folder, folder + ".moved")
    try:
        arena.show(os.path.join(folder + ".moved", os.path.basename(arena.secret("denied"))))
    finally:
        os.rename(folder + ".moved", folder)


@attempt()
def read_denied_by_exchange(arena: Arena) -> None:
    syscall(RENAMEAT2, AT_FDCWD, arena.own_file().encode(), AT_FDCWD, arena.secret("denied").encode(), RENAME_EXCHANGE)
    try:
        arena.show(arena.own(".own"))
    finally:
        syscall(
            RENAMEAT2, AT_FDCWD, arena.own(".own").encode(), AT_FDCWD, arena.secret("denied").encode(), RENAME_EXCHANGE
        )


@attempt()
def read_denied_by_other_program(arena: Arena) -> None:
    say(subprocess.run(["/bin/cat", arena.secret("denied")], capture_output=True, check=False).stdout)


@attempt()
def read_denied_as_input(arena: Arena) -> None:
    say(subprocess.run(f"cat < '{arena.secret('denied')}'", shell=True, capture_output=True, check=False).stdout)


@attempt()
def read_inherited_descriptors(arena: Arena) -> None:
    for number in range(3, 1024):
        with contextlib.suppress(OSError):
            os.lseek(number, 0, os.SEEK_SET)
            say(os.read(number, 1000))


@attempt()
def write_beneath_inherited_folders(arena: Arena) -> None:
    for number in range(3, 1024):
        with contextlib.suppress(OSError, NotADirectoryError):
            descriptor = os.open(os.path.basename(arena.new()), os.O_WRONLY | os.O_CREAT, dir_fd=number)
            os.write(descriptor, b"changed")


@attempt()
def read_own_environment(arena: Arena) -> None:
    say(dict(os.environ))


@attempt()
def read_all_environments(arena: Arena) -> None:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            arena.show(f"/proc/{pid}/environ")


# Races at names that lead outside.


@attempt()
def race_symlink_against_folder(arena: Arena) -> None:
    """One thread swaps a folder for a link to the outside; the other writes through the name."""
    inside, link = arena.own(".real"), arena.own(".link")
    os.mkdir(inside)
    os.symlink(os.path.dirname(arena.file()), link)
    done = threading.Event()

    def exchange() -> None:
        syscall(RENAMEAT2, AT_FDCWD, inside.encode(), AT_FDCWD, link.encode(), RENAME_EXCHANGE)

    def swap() -> None:
        while not done.is_set():
            exchange()

    def write() -> None:
        with contextlib.suppress(OSError):
            arena.write(os.path.join(inside, os.path.basename(arena.file())))

    swapper = threading.Thread(target=swap)
    swapper.start()
    for _ in range(RACES):
        write()
    done.set()
    swapper.join()
    # Two threads of one interpreter may have taken turns all the time: at least once, the name surely leads outside.
    if not os.path.islink(inside):
        exchange()
    write()


@attempt()
def race_parent_of_descriptor(arena: Arena) -> None:
    """A folder is opened inside and moved while `..` is walked from it."""
    deep = arena.own() + "/a/b/c"
    os.makedirs(deep)
    descriptor = os.open(deep, os.O_RDONLY)
    os.rename(arena.own() + "/a/b/c", arena.own() + "/c")
    up = "../" * 30
    target = os.open(up + arena.file(), os.O_WRONLY, dir_fd=descriptor)
    os.write(target, b"changed")
