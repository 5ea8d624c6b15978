from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from parley.errors import ToolError
from parley.workspace.base import Scope
from tests.helpers import paths
from tests.helpers.workspace import WorkspaceHarness, as_nobody

SMALL_DISK = """
import sys
from pathlib import Path
sys.path.insert(0, {folder!r})
from parley.errors import ToolError
from tests.helpers.workspace import WorkspaceHarness

desk = WorkspaceHarness(Path({base!r}))
try:
    desk.put({name!r}, b"x" * {size})
except ToolError as told:
    print(told)
print(sorted(str(path.relative_to(desk.inside)) for path in desk.inside.rglob("*")))
"""


@pytest.fixture
def harness(tmp_path: Path) -> WorkspaceHarness:
    return WorkspaceHarness(tmp_path)


def refusal(harness: WorkspaceHarness, name: str, data: bytes = b"new") -> str:
    """What a write is told."""
    with pytest.raises(ToolError) as told:
        harness.put(name, data)
    return str(told.value).replace(str(harness.inside), "<inside>")


def test_a_missing_file_is_reported_with_up_to_three_near_names(harness: WorkspaceHarness) -> None:
    for name in ("config.toml", "config.yaml", "Config.json", "confit.toml", "zebra"):
        (harness.inside / name).touch()

    with pytest.raises(ToolError) as told:
        harness.files.read(f"{harness.inside}/confg.toml", harness.reach)
    text = str(told.value)
    assert text.startswith(f"File does not exist: {harness.inside}/confg.toml. Did you mean config.toml or confit.toml")
    assert text.count(" or ") <= 2
    assert "zebra" not in text


def test_a_name_in_another_case_is_a_near_name(harness: WorkspaceHarness) -> None:
    (harness.inside / "README.md").touch()

    with pytest.raises(ToolError, match=r"Did you mean README\.md\?$"):
        harness.files.read(f"{harness.inside}/readme.md", harness.reach)


def test_where_nothing_comes_near_the_working_directory_is_reported(harness: WorkspaceHarness) -> None:
    with pytest.raises(ToolError, match=f"your current working directory is {harness.inside}"):
        harness.files.read(f"{harness.inside}/none/at/all", harness.reach)


def test_names_out_of_reach_are_not_reported(harness: WorkspaceHarness) -> None:
    (harness.outside / "secrets.txt").touch()

    with pytest.raises(ToolError) as told:
        harness.files.read(f"{harness.outside}/secret.txt", harness.reach)
    assert "secrets.txt" not in str(told.value)


def test_a_name_that_is_too_long_is_reported(harness: WorkspaceHarness) -> None:
    assert refusal(harness, "n" * 300) == f"<inside>/{'n' * 300} cannot be read: the name is too long."


def test_a_file_in_the_place_of_a_folder_is_reported(harness: WorkspaceHarness) -> None:
    (harness.inside / "file").touch()

    assert refusal(harness, "file/new") == "<inside>/file/new cannot be read: part of the path is a file, not a folder."


def test_links_in_a_circle_are_reported(harness: WorkspaceHarness) -> None:
    (harness.inside / "one").symlink_to("two")
    (harness.inside / "two").symlink_to("one")

    assert refusal(harness, "one").startswith("The path cannot be resolved: its symlinks form a loop")


def test_a_folder_that_may_not_be_written_to_is_reported(harness: WorkspaceHarness) -> None:
    (harness.inside / "file").write_bytes(b"old")
    with as_nobody(harness.inside.parent):
        harness.inside.chmod(0o555)
        assert refusal(harness, "file") == "<inside>/file cannot be written: permission denied."
        assert refusal(harness, "new/file") == "<inside>/new/file cannot be written: permission denied."
    assert harness.tree() == {"file": b"old"}


def test_a_file_that_may_not_be_read_is_reported(harness: WorkspaceHarness) -> None:
    (harness.inside / "file").write_bytes(b"old")
    with as_nobody(harness.inside.parent):
        (harness.inside / "file").chmod(0)
        with pytest.raises(ToolError, match="cannot be read: permission denied"):
            harness.files.read(f"{harness.inside}/file", harness.reach)


@contextmanager
def files_no_larger_than(most_bytes: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, old)


def test_a_write_that_breaks_off_leaves_the_old_file_and_nothing_else(harness: WorkspaceHarness) -> None:
    harness.put("file", b"old")
    with files_no_larger_than(100_000):
        told = refusal(harness, "file", b"x" * 1_000_000)

    assert told == "<inside>/file cannot be written: it is too large for the file system."
    assert harness.tree() == {"file": b"old"}
    harness.put("file", b"x" * 1_000_000)
    assert harness.tree() == {"file": b"x" * 1_000_000}


@pytest.mark.parametrize(
    ("mount", "size", "told"),
    [("size=64k", 1_000_000, "the disk is full"), ("ro", 1, "the file system is read-only")],
)
def test_a_disk_that_takes_nothing_is_reported(harness: WorkspaceHarness, mount: str, size: int, told: str) -> None:
    script = SMALL_DISK.format(folder=str(paths.ROOT), base=str(harness.inside.parent), name="disk/file", size=size)
    (harness.inside / "disk").mkdir()
    mounted = f'mount -t tmpfs -o {mount} none "$1" && exec "$2" -c "$3"'
    argv = ["unshare", "--mount", "--map-root-user", "sh", "-c", mounted, "sh"]
    try:
        subprocess.run([*argv[:3], "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs a small tmpfs, and this machine does not let a process mount one (unshare --mount)")

    ran = subprocess.run(
        [*argv, str(harness.inside / "disk"), sys.executable, script], capture_output=True, text=True, check=False
    )
    assert ran.stdout == f"{harness.inside}/disk/file cannot be written: {told}.\n['disk']\n", ran.stderr


def test_without_room_for_a_checkpoint_nothing_is_changed(harness: WorkspaceHarness) -> None:
    (harness.inside / "file").write_bytes(b"old")
    harness.history.parent.mkdir(parents=True)
    harness.history.write_text("a file where the folder should be")

    told = refusal(harness, "file")
    assert told.startswith("<inside>/file was not changed, because its checkpoint could not be saved")
    assert harness.tree() == {"file": b"old"}


def test_reach_anywhere_is_refused_by_the_system_all_the_same(harness: WorkspaceHarness) -> None:
    with pytest.raises(ToolError, match="cannot be written"):
        harness.files.write("/proc/none/file", b"", Scope(anywhere=True), replacing=None)
    assert os.listdir(harness.inside) == []
