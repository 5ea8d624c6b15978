"""Finding files on this machine, by path and by content, no further than allowed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from parley.errors import ToolError
from parley.workspace.base import ContentQuery, FileListing, Scope, SearchArea, SearchMatches
from tests.helpers.remote_workspace import make_search


def plant(folder: Path, files: dict[str, str]) -> None:
    """Files, each a second younger than the one before."""
    for age, (name, content) in enumerate(files.items(), 1):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        os.utime(path, (age, age))


def area(folder: Path, **more: Any) -> SearchArea:
    return SearchArea(**{"path": str(folder), "cwd": str(folder), "scope": Scope(anywhere=True), **more})


def listed(pattern: str, where: SearchArea, most: int = 100) -> FileListing:
    return make_search({}).files(pattern, where, most=most, ignored=False, hidden=True, stop=lambda: False)


async def matched(query: ContentQuery, where: SearchArea) -> SearchMatches:
    async with asyncio.timeout(60):
        return await make_search({}).matches(query, where, timeout_seconds=15, enough_lines=100)


async def paths(query: ContentQuery, where: SearchArea) -> list[str]:
    return [path for path, _ in (await matched(query, where)).files]


# By their paths.


def test_a_pattern_without_a_slash_is_for_names_everywhere(tmp_path: Path) -> None:
    plant(tmp_path, {"a.py": "", "sub/b.py": "", "sub/c.txt": ""})

    assert listed("*.py", area(tmp_path)) == FileListing(paths=["sub/b.py", "a.py"], total=2)
    assert listed("./*.py", area(tmp_path)).paths == ["a.py"]


def test_the_folders_a_pattern_names_are_where_the_search_starts(tmp_path: Path) -> None:
    plant(tmp_path, {".git/x": "", ".gitignore": "build/\n", "build/deep/a.js": "", "b.js": ""})

    assert listed("**/*.js", area(tmp_path)).paths == ["b.js"]
    assert listed("build/**/*.js", area(tmp_path)).paths == ["build/deep/a.js"]
    assert listed(f"{tmp_path}/build/**/*.js", area(tmp_path)).paths == ["build/deep/a.js"]
    assert listed("build/", area(tmp_path)).paths == ["build/deep/a.js"]


def test_what_lies_outside_the_working_directory_is_reported_in_full(tmp_path: Path) -> None:
    plant(tmp_path, {"work/a": "", "other/b": ""})
    where = area(tmp_path / "work", path=str(tmp_path / "other"))

    assert listed("*", where).paths == [f"{tmp_path}/other/b"]
    assert listed("../other/*", area(tmp_path / "work")).paths == [f"{tmp_path}/other/b"]


def test_only_so_many_are_reported_and_all_are_counted(tmp_path: Path) -> None:
    plant(tmp_path, {"1": "", "2": "", "3": ""})

    assert listed("*", area(tmp_path), most=2) == FileListing(paths=["3", "2"], total=3)


def test_a_pattern_for_a_folder_that_is_not_there_finds_nothing(tmp_path: Path) -> None:
    plant(tmp_path, {"a": ""})

    assert listed("nowhere/*", area(tmp_path)) == FileListing()
    assert listed("a/*", area(tmp_path)) == FileListing()


def test_a_path_that_is_not_there_is_refused_with_names_that_come_near(tmp_path: Path) -> None:
    plant(tmp_path, {"tests/a": ""})

    with pytest.raises(ToolError, match=r"does not exist: .*/test\..*Did you mean .*tests"):
        listed("*", area(tmp_path, path=str(tmp_path / "test")))


def test_a_file_is_not_a_place_to_look_in(tmp_path: Path) -> None:
    plant(tmp_path, {"a": ""})

    with pytest.raises(ToolError, match="is a file, not a folder"):
        listed("*", area(tmp_path, path=str(tmp_path / "a")))


def test_a_pattern_that_stands_for_too_much_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="The pattern cannot be used"):
        listed("{a,b}" * 20, area(tmp_path))


def test_links_are_reported_if_they_lead_to_a_file_within_reach(tmp_path: Path) -> None:
    plant(tmp_path, {"work/a": "", "out/secret": ""})
    for name, target in {"in": "a", "far": "../out/secret", "lost": "nothing", "folder": "../out"}.items():
        (tmp_path / "work" / name).symlink_to(target)
    near = area(tmp_path / "work", scope=Scope(folders=(str(tmp_path / "work"),)))

    assert sorted(listed("*", near).paths) == ["a", "in"]
    assert sorted(listed("*", area(tmp_path / "work")).paths) == ["a", "far", "in"]


async def test_nothing_is_looked_for_out_of_reach(tmp_path: Path) -> None:
    plant(tmp_path, {"work/a": "", "out/b": "x"})
    (tmp_path / "work" / "link").symlink_to("../out")
    reach = Scope(folders=(str(tmp_path / "work"),))
    for path, pattern in ((tmp_path / "out", "*"), (tmp_path / "work", "../out/*"), (tmp_path / "work", "link/*")):
        with pytest.raises(ToolError, match="outside the paths that this call may access"):
            listed(pattern, area(tmp_path, path=str(path), scope=reach))
    for path in (tmp_path / "out", tmp_path / "work" / "link", tmp_path / "out" / "b"):
        with pytest.raises(ToolError, match="outside the paths that this call may access"):
            await matched(ContentQuery(pattern="x"), area(tmp_path, path=str(path), scope=reach))


async def test_hidden_files_are_neither_reported_nor_counted(tmp_path: Path) -> None:
    plant(tmp_path, {"a": "beta", "secret/key": "beta"})
    where = area(tmp_path, hides=lambda path: path.startswith(f"{tmp_path}/secret/"))

    assert listed("*", where) == FileListing(paths=["a"], total=1)
    for mode in ("files", "count", "content"):
        assert await paths(ContentQuery(pattern="beta", mode=mode), where) == ["a"]
    with pytest.raises(ToolError, match="a permission rule denies it"):
        await matched(
            ContentQuery(pattern="beta"), area(tmp_path, path=str(tmp_path / "secret/key"), hides=where.hides)
        )


async def test_a_rule_counts_for_either_name_of_a_place(tmp_path: Path) -> None:
    plant(tmp_path, {"real/key": "beta"})
    (tmp_path / "link").symlink_to("real")
    for name in ("real", "link"):
        hidden = f"{tmp_path}/{name}/key"
        where = area(tmp_path, path=str(tmp_path / "link"), hides=lambda path, hidden=hidden: path == hidden)

        assert listed("*", where).paths == []
        assert await paths(ContentQuery(pattern="beta"), where) == []


# By what is in them.


async def test_files_with_matches_come_newest_first(tmp_path: Path) -> None:
    plant(tmp_path, {"z": "beta", "a": "beta", "sub/m": "beta", "none": "alpha"})

    assert await paths(ContentQuery(pattern="beta"), area(tmp_path)) == ["sub/m", "a", "z"]


async def test_other_answers_come_in_the_order_of_paths(tmp_path: Path) -> None:
    plant(tmp_path, {"z": "beta", "a": "beta\nbeta", "sub/m": "beta"})

    assert (await matched(ContentQuery(pattern="beta", mode="count"), area(tmp_path))).files == [
        ("a", [b"2"]),
        ("sub/m", [b"1"]),
        ("z", [b"1"]),
    ]


async def test_a_file_alone_is_reported_by_its_name(tmp_path: Path) -> None:
    plant(tmp_path, {"sub/a.txt": "beta\n"})
    where = area(tmp_path, path=str(tmp_path / "sub/a.txt"))

    assert (await matched(ContentQuery(pattern="beta", mode="content"), where)).files == [("sub/a.txt", [b"1:beta"])]


async def test_ignore_files_hidden_files_and_version_control(tmp_path: Path) -> None:
    plant(tmp_path, {".git/config": "beta", ".gitignore": "*.log\n", "a.log": "beta", ".env": "beta", "b": "beta"})

    assert await paths(ContentQuery(pattern="beta"), area(tmp_path)) == ["b", ".env"]
    assert await paths(ContentQuery(pattern="beta", globs=("*",)), area(tmp_path)) == ["b", ".env"]
    assert await paths(ContentQuery(pattern="beta", globs=("*.log",)), area(tmp_path)) == []


async def test_links_are_not_searched(tmp_path: Path) -> None:
    plant(tmp_path, {"work/a": "beta", "out/secret": "beta"})
    (tmp_path / "work" / "link").symlink_to("../out")
    (tmp_path / "work" / "file").symlink_to("../out/secret")

    assert await paths(ContentQuery(pattern="beta"), area(tmp_path / "work")) == ["a"]


async def test_a_name_that_is_not_text_is_shown_as_text(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.py")).write_text("beta")

    assert listed("*.py", area(tmp_path)).paths == ["\ufffd.py"]
    assert await paths(ContentQuery(pattern="beta"), area(tmp_path)) == ["\ufffd.py"]
