from __future__ import annotations

import os
import socket
import subprocess
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from parley.errors import ToolError
from parley.workspace import safe_open, syscalls
from parley.workspace.base import Scope
from parley.workspace.safe_open import Pins, Swapped


@pytest.fixture(params=["openat2", "walk"], autouse=True)
def _both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test holds with openat2 and without."""
    if request.param == "walk":
        monkeypatch.setattr(syscalls, "has_openat2", lambda: False)
    elif not syscalls.has_openat2():
        pytest.skip("this kernel has no openat2")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    for file in ("root/file", "root/sub/file", "rooted/file", "secret"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(file)
    return tmp_path


def read(path: str | Path, reach: Scope, pins: Pins | None = None) -> str:
    """The content of what a name leads to."""
    with safe_open.find(str(path), reach, pins or Pins()) as place:
        descriptor = place.open()
        try:
            return os.read(descriptor, 1000).decode()
        finally:
            os.close(descriptor)


def within(base: Path) -> Scope:
    return Scope(folders=(str(base / "root"),))


@pytest.mark.parametrize("name", ["root/file", "root//sub///file", "root/./sub/file", "root/sub/../file", "root/file/"])
def test_every_spelling_of_a_file_within_reach_is_opened(base: Path, name: str) -> None:
    assert read(f"{base}/{name}", within(base)) in ("root/file", "root/sub/file")


def test_a_place_has_the_real_path(base: Path) -> None:
    (base / "root/link").symlink_to("sub")

    with safe_open.find(f"{base}/root/link/../sub//file", within(base), Pins()) as place:
        assert place.path == str(base / "root/sub/file")


@pytest.mark.parametrize(
    "target", ["sub/file", "{root}/sub/file", "../root/sub/file", "/proc/self/root{root}/sub/file"]
)
def test_a_link_that_stays_inside_is_followed(base: Path, target: str) -> None:
    (base / "root/link").symlink_to(target.format(root=base / "root"))

    assert read(base / "root/link", within(base)) == "root/sub/file"


@pytest.mark.parametrize("target", ["../secret", "{base}/secret", "/proc/self/root{base}/secret", "again"])
def test_a_link_that_leads_out_is_refused(base: Path, target: str) -> None:
    (base / "root/link").symlink_to(target.format(base=base))
    (base / "root/again").symlink_to("../secret")

    with pytest.raises(ToolError, match=f"leads to {base}/secret, which is outside"):
        read(base / "root/link", within(base))


def test_a_folder_that_is_a_link_out_is_refused(base: Path) -> None:
    (base / "root/away").symlink_to(base / "rooted")

    with pytest.raises(ToolError, match="outside"):
        read(base / "root/away/file", within(base))


@pytest.mark.parametrize(
    "name", ["root/../secret", "root/sub/../../secret", "rooted/file", "secret", "root/../rooted/file"]
)
def test_what_is_not_beneath_the_folder_is_refused(base: Path, name: str) -> None:
    with pytest.raises(ToolError, match="outside the paths that this call may access"):
        read(f"{base}/{name}", within(base))


def test_the_aliases_of_proc_do_not_lead_out(base: Path) -> None:
    descriptor = os.open(base / "secret", os.O_RDONLY)
    here = os.open(base, os.O_RDONLY)
    try:
        for name in (
            f"/proc/self/root{base}/secret",
            f"/proc/{os.getpid()}/root{base}/secret",
            f"/proc/self/fd/{descriptor}",
            f"/dev/fd/{descriptor}",
            f"/proc/self/fd/{here}/secret",
            f"{base}/root/../../../../../../../../../proc/self/fd/{here}/secret",
        ):
            with pytest.raises(ToolError):
                read(name, within(base))
    finally:
        os.close(descriptor)
        os.close(here)


@pytest.mark.parametrize("spelling", [str.upper, lambda name: unicodedata.normalize("NFD", name)])
def test_a_respelled_folder_is_not_the_folder(tmp_path: Path, spelling: Callable[[str], str]) -> None:
    (tmp_path / "café").mkdir()
    other = tmp_path / spelling("café")
    other.mkdir()
    (other / "file").write_text("other")

    with pytest.raises(ToolError, match="outside"):
        read(other / "file", Scope(folders=(str(tmp_path / "café"),)))


def test_a_folder_that_becomes_a_link_later_is_refused(base: Path) -> None:
    pins = Pins()
    assert read(base / "root/file", within(base), pins) == "root/file"
    (base / "root").rename(base / "elsewhere")
    (base / "root").symlink_to(base / "rooted")

    with pytest.raises(ToolError, match="outside"):
        read(base / "root/file", within(base), pins)


def test_a_folder_that_is_a_link_from_the_start_stands_for_its_target(base: Path) -> None:
    (base / "project").symlink_to("root")

    assert read(base / "project/file", Scope(folders=(str(base / "project"),))) == "root/file"
    assert read(base / "root/file", Scope(folders=(str(base / "project"),))) == "root/file"


def test_a_link_that_appears_after_the_check_is_not_followed(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (base / "root/link").symlink_to("../rooted")
    monkeypatch.setattr(os.path, "realpath", lambda path: path)

    with pytest.raises(Swapped):
        read(base / "root/link/file", within(base))


def test_a_link_in_the_place_of_the_file_is_not_followed(base: Path) -> None:
    with safe_open.find(str(base / "root/file"), within(base), Pins()) as place:
        (base / "root/file").unlink()
        (base / "root/file").symlink_to("../secret")
        with pytest.raises(Swapped):
            place.open()


def test_exactly_the_files_of_a_reach_are_opened(base: Path) -> None:
    reach = Scope(files=(str(base / "root/file"),))

    assert read(base / "root/sub/../file", reach) == "root/file"
    with pytest.raises(ToolError, match="outside"):
        read(base / "root/sub/file", reach)


def test_another_name_of_the_same_object_may_be_read_but_not_written(base: Path) -> None:
    (base / "alias").hardlink_to(base / "root/file")
    reach = Scope(files=(str(base / "root/file"),))

    assert read(base / "alias", reach) == "root/file"
    with pytest.raises(ToolError, match="outside"), safe_open.find(str(base / "alias"), reach, Pins(), to_write=True):
        pass


def test_another_name_that_is_swapped_is_not_opened(base: Path) -> None:
    (base / "alias").hardlink_to(base / "root/file")

    with safe_open.find(str(base / "alias"), Scope(files=(str(base / "root/file"),)), Pins()) as place:
        (base / "alias").unlink()
        (base / "alias").write_text("another")
        with pytest.raises(Swapped):
            place.open()


def test_a_file_of_a_reach_that_is_a_link_by_now_is_refused(base: Path) -> None:
    (base / "root/granted").symlink_to("../secret")

    with pytest.raises(ToolError, match="outside"):
        read(base / "root/granted", Scope(files=(str(base / "root/granted"),)))


def test_a_file_to_be_made_is_judged_by_its_place(base: Path) -> None:
    reach = Scope(files=(str(base / "new"),))

    with safe_open.find(str(base / "new"), reach, Pins(), to_write=True) as place:
        assert place.status() is None
    with pytest.raises(ToolError, match="outside"), safe_open.find(str(base / "newer"), reach, Pins(), to_write=True):
        pass


def test_folders_are_made_beneath_the_reach_only(base: Path) -> None:
    with safe_open.find(str(base / "root/a/b/c"), within(base), Pins(), make_folders=True) as place:
        assert place.path == str(base / "root/a/b/c")
    assert (base / "root/a/b").is_dir()

    with pytest.raises(ToolError), safe_open.find(str(base / "new/file"), within(base), Pins(), make_folders=True):
        pass
    assert not (base / "new").exists()


def test_a_very_deep_path_is_made(base: Path) -> None:
    deep = "/".join(["a"] * 1_200)

    with safe_open.find(f"{base}/root/{deep}/file", within(base), Pins(), make_folders=True) as place:
        assert place.status() is None
    subprocess.run(["rm", "-rf", base / "root/a"], check=True)  # too deep for what clears up behind tests


def test_reach_anywhere_opens_anything_regular(base: Path) -> None:
    assert read(base / "secret", Scope(anywhere=True)) == "secret"
    assert read(f"/proc/self/root{base}/secret", Scope(anywhere=True)) == "secret"


def test_no_reach_opens_nothing(base: Path) -> None:
    with pytest.raises(ToolError, match=r"may access \(nothing\)"):
        read(base / "secret", Scope())


def test_what_is_not_a_regular_file_is_refused_by_its_kind(base: Path) -> None:
    os.mkfifo(base / "root/pipe")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(base / "root/socket"))
    anywhere = Scope(anywhere=True)
    with listening:
        for name, kind in (
            (base / "root/pipe", "a named pipe"),
            (base / "root/socket", "a socket"),
            (base / "root/sub", "a folder"),
            (base / "root", "a folder"),
            ("/dev/null", "a device"),
            ("/", "a folder"),
        ):
            with pytest.raises(ToolError, match=f"is {kind}"):
                read(name, anywhere)
    with pytest.raises(ToolError, match="is a folder"):
        read(base / "root", within(base))


def test_a_pipe_that_takes_the_place_of_a_file_does_not_hang(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with safe_open.find(str(base / "root/file"), within(base), Pins()) as place:
        regular = os.stat(base / "root/file")
        (base / "root/file").unlink()
        os.mkfifo(base / "root/file")
        monkeypatch.setattr(os, "stat", lambda *path, **how: regular)
        with pytest.raises(ToolError, match="a named pipe"):
            place.open()


def test_a_link_that_takes_the_place_of_a_file_is_not_followed(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with safe_open.find(str(base / "root/file"), within(base), Pins()) as place:
        regular = os.stat(base / "root/file")
        (base / "root/file").unlink()
        (base / "root/file").symlink_to("../secret")
        monkeypatch.setattr(os, "stat", lambda *path, **how: regular)
        with pytest.raises(Swapped):
            place.open()


def test_a_chain_of_very_many_links_is_refused(base: Path) -> None:
    for number in range(2_000):
        (base / "root" / f"link{number}").symlink_to(f"link{number + 1}")

    with pytest.raises(ToolError, match="too many levels of symlinks"):
        read(base / "root/link0", within(base))


@pytest.mark.parametrize("path", ["file", "./file", "~/file", "", "/a\0b", "/a\ud800b"])
def test_what_can_be_no_path_is_refused(path: str) -> None:
    with pytest.raises(ToolError):
        read(path, Scope(anywhere=True))


def test_a_target_that_is_not_unicode_is_refused(base: Path) -> None:
    os.symlink(b"caf\xe9", os.fsencode(base / "root/link"))

    with pytest.raises(ToolError, match="not valid Unicode"):
        read(base / "root/link", within(base))


def test_a_folder_that_was_moved_is_noticed(base: Path) -> None:
    with safe_open.find(str(base / "root/sub/file"), within(base), Pins()) as place:
        assert not place.has_moved()
        (base / "root/sub").rename(base / "moved")
        assert place.has_moved()
        (base / "root/sub").symlink_to(base / "moved")
        assert place.has_moved()


def test_no_descriptor_is_left_open(base: Path) -> None:
    (base / "root/link").symlink_to("../secret")
    before = len(os.listdir("/proc/self/fd"))
    for name in ("root/file", "root/link", "root/none/file", "root/file/x", "secret", "root/sub"):
        with suppress(ToolError, OSError):
            read(base / name, within(base))
    with safe_open.find(f"{base}/root/x/y/z", within(base), Pins(), make_folders=True):
        pass

    assert len(os.listdir("/proc/self/fd")) == before
