"""Where a search begins: judged as what it is, not by its name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from parley.errors import ToolError
from parley.workspace.base import Scope
from parley.workspace.safe_open import Pins
from parley.workspace.search.search import Missing, Root, open_root, printable

ANYWHERE = Scope(anywhere=True)


def refusal(path: Path, reach: Scope = ANYWHERE) -> str:
    with pytest.raises(ToolError) as caught, open_root(str(path), reach, Pins()):
        pass
    return str(caught.value)


def test_a_folder_is_opened_once_and_stays_the_same(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "a").touch()
    with open_root(str(tmp_path / "here"), ANYWHERE, Pins()) as root:
        os.rename(tmp_path / "here", tmp_path / "moved")
        (tmp_path / "here").mkdir()

        assert os.listdir(root.descriptor) == ["a"]
        assert os.listdir(root.path()) == ["a"]


def test_a_link_is_judged_by_where_it_leads(tmp_path: Path) -> None:
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "in" / "link").symlink_to(tmp_path / "out")
    (tmp_path / "out" / "link").symlink_to(tmp_path / "in")
    reach = Scope(folders=(str(tmp_path / "in"),))

    assert "outside the paths that this call may access" in refusal(tmp_path / "in" / "link", reach)
    with open_root(str(tmp_path / "out" / "link"), reach, Pins()) as root:
        assert root.real == str(tmp_path / "in")


def test_a_folder_with_the_same_beginning_is_not_beneath(tmp_path: Path) -> None:
    for name in ("work", "work-not"):
        (tmp_path / name).mkdir()

    assert "outside" in refusal(tmp_path / "work-not", Scope(folders=(str(tmp_path / "work"),)))


def test_a_detour_through_proc_does_not_help(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()

    assert "outside" in refusal(Path(f"/proc/self/root{tmp_path}"), Scope(folders=(str(tmp_path / "work"),)))


def test_the_border_does_not_move_with_a_link(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "out").mkdir()
    reach, pins = Scope(folders=(str(tmp_path / "work"),)), Pins()
    with open_root(str(tmp_path / "work"), reach, pins):
        pass
    (tmp_path / "work").rmdir()
    (tmp_path / "work").symlink_to(tmp_path / "out")

    with pytest.raises(ToolError, match="outside"), open_root(str(tmp_path / "work"), reach, pins):
        pass


def test_a_file_may_be_all_there_is_to_search(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "b").write_text("x")
    reach = Scope(files=(str(tmp_path / "a"),))
    with open_root(str(tmp_path / "a"), reach, Pins()) as root:
        assert not root.is_folder

    assert "outside" in refusal(tmp_path / "b", reach)


def test_what_is_missing_or_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()

    with pytest.raises(Missing), open_root(str(tmp_path / "nothing"), ANYWHERE, Pins()):
        pass
    with pytest.raises(Missing), open_root(str(tmp_path / "file" / "x"), ANYWHERE, Pins()):
        pass
    assert "neither a file nor a folder" in refusal(tmp_path / "pipe")
    assert "must be absolute" in refusal(Path("relative"))


def root(named: str, real: str) -> Root:
    return Root(descriptor=-1, named=named, real=real, is_folder=True)


def test_paths_are_reported_from_the_working_directory(tmp_path: Path) -> None:
    cwd = str(tmp_path)

    assert root(cwd, cwd).shown_from(cwd) == ""
    assert root(f"{cwd}/a/../sub/", f"{cwd}/sub").shown_from(cwd) == "sub"
    assert root("/usr/../usr/lib", "/usr/lib").shown_from(cwd) == "/usr/lib"
    assert root(f"{cwd}2", f"{cwd}2").shown_from(cwd) == f"{cwd}2"


def test_a_path_is_hidden_by_either_of_its_names() -> None:
    place = root("/link", "/real")

    assert place.hides(lambda path: path == "/link/a")("a")
    assert place.hides(lambda path: path == "/real/a")("a")
    assert not place.hides(lambda path: path == "/real/b")("a")


def test_a_name_that_is_not_text_is_made_one() -> None:
    assert printable("a/\udcff.py") == "a/\ufffd.py"
    assert printable("ä.py") == "ä.py"
