"""Under Landlock, modes, times and attributes can be changed where files can be changed, and nowhere else."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from tests.helpers import sandbox_session

CHANGES = """
import os, pathlib, shutil, stat, subprocess, sys

os.umask(0o022)
here = pathlib.Path(sys.argv[1])
os.chdir(here)
file = here / "file"
file.write_text("text")

def mode(path):
    return oct(stat.S_IMODE(os.lstat(path).st_mode))

def same(found, expected):
    if found != expected:
        raise SystemExit(f"line {sys._getframe(1).f_lineno}: {found!r} is not {expected!r}")

folder = os.open(here, os.O_RDONLY)
os.chmod(file, 0o755); same(mode(file), "0o755")
os.chmod("file", 0o640); same(mode(file), "0o640")
os.chmod("file", 0o600, dir_fd=folder); same(mode(file), "0o600")
opened = os.open(file, os.O_RDWR)
os.fchmod(opened, 0o644); same(mode(file), "0o644")
os.chmod(f"/proc/self/fd/{opened}", 0o700); same(mode(file), "0o700")
os.symlink("file", "link")
os.chmod("link", 0o711); same(mode(file), "0o711")
os.utime(file, (1, 2)); same(os.stat(file).st_mtime, 2.0)
os.utime("file", ns=(5, 7), dir_fd=folder); same(os.stat(file).st_mtime_ns, 7)
os.utime(opened, (3, 4)); same(os.stat(file).st_mtime, 4.0)
os.utime("link", (8, 9), follow_symlinks=False); same((os.lstat("link").st_mtime, os.stat(file).st_mtime), (9.0, 4.0))
os.utime(file); same(os.stat(file).st_mtime > 1e9, True)
os.setxattr(file, "user.a", b"value"); same(os.getxattr(file, "user.a"), b"value")
os.setxattr(opened, "user.b", b""); same(sorted(os.listxattr(file)), ["user.a", "user.b"])
os.removexattr(file, "user.a"); same(os.listxattr(file), ["user.b"])
os.chown(file, os.getuid(), os.getgid()); os.chown(file, -1, -1); os.lchown("link", -1, -1)
(here / "inner").mkdir(mode=0o700); os.chmod("inner", 0o2775); same(mode("inner"), "0o2775")
subprocess.run("touch -d @5 file; cp -p file copy; install -m 750 file installed; tar cf t.tar file inner;"
               "mkdir out; tar xf t.tar -C out; chmod -R u+w out", shell=True, check=True)
same((os.stat("copy").st_mtime, mode("installed"), os.stat("out/file").st_mtime), (5.0, "0o750", 5.0))
reader, writer = os.pipe(); os.fchmod(reader, 0o600)
for name in ("missing", "missing/inner", "file/inner"):
    try:
        os.chmod(name, 0o600)
    except (FileNotFoundError, NotADirectoryError):
        continue
    raise SystemExit(name)
print("all", "changed")
"""


def build_command(place: Path) -> str:
    return f"{shlex.quote(sys.executable)} -I -S changes.py {shlex.quote(str(place))}"


def test_files_in_writable_folders_can_be_changed_as_without_a_sandbox(tmp_path: Path) -> None:
    sandbox_session.require("landlock")
    work = tmp_path / "work"
    (work / "place").mkdir(parents=True)
    (work / "changes.py").write_text(CHANGES)

    ran = sandbox_session.run(build_command(work / "place"), work, kind="landlock")

    assert (ran.sandbox, ran.output) == ("landlock", "all changed")


def test_the_same_changes_work_without_a_sandbox(tmp_path: Path) -> None:
    """The control: the program asks for nothing that would fail anyway."""
    (tmp_path / "place").mkdir()
    (tmp_path / "changes.py").write_text(CHANGES)

    assert os.waitstatus_to_exitcode(os.system(f"cd {tmp_path}; {build_command(tmp_path / 'place')} > out")) == 0


def test_a_program_can_be_compiled_and_run(tmp_path: Path) -> None:
    sandbox_session.require("landlock")
    if shutil.which("gcc") is None:
        pytest.skip("no compiler")
    work = tmp_path / "work"
    work.mkdir()
    (work / "main.c").write_text('#include <stdio.h>\nint main(void) { puts("compiled"); return 0; }\n')

    ran = sandbox_session.run("gcc -o program main.c && ./program", work, kind="landlock")

    assert ran.output == "compiled"


def test_threads_that_swap_the_path_do_not_lead_outside(tmp_path: Path) -> None:
    """The supervisor changes the file that it has checked, not what the path means a moment later."""
    sandbox_session.require("landlock")
    work, outside = tmp_path / "work", tmp_path / "outside"
    for folder in (work, outside):
        folder.mkdir()
        (folder / "file").write_text("text")
        (folder / "file").chmod(0o600)
    (work / "race.py").write_text(f"""
import contextlib, os, threading
os.symlink({str(outside / "file")!r}, "link")
os.symlink("file", "other")
done = threading.Event()
def swap():
    while not done.is_set():
        os.rename("link", "x"); os.rename("other", "link"); os.rename("x", "other")
thread = threading.Thread(target=swap)
thread.start()
for _ in range(300):
    for name in ("link", "other"):
        with contextlib.suppress(OSError):
            os.chmod(name, 0o777)
        with contextlib.suppress(OSError):
            os.utime(name, (1, 1))
done.set()
thread.join()
print("raced")
""")
    before = (outside / "file").stat()

    ran = sandbox_session.run(f"{shlex.quote(sys.executable)} -I -S race.py", work, kind="landlock")

    after = (outside / "file").stat()
    assert ran.output == "raced"
    assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)
    assert (work / "file").stat().st_mode & 0o777 == 0o777
