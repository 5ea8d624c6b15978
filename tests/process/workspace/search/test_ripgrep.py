"""ripgrep as a process: how it is found and asked, and that it ends."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from parley.errors import ToolError
from parley.workspace.base import ContentQuery, Scope, SearchMatches
from parley.workspace.landlock import is_supported
from parley.workspace.safe_open import Pins
from parley.workspace.search import ripgrep
from parley.workspace.search.ripgrep import Conditions, arguments, programs, search
from parley.workspace.search.search import Root, open_root

NO_PATH = {"PATH": ""}


@contextmanager
def at(path: Path) -> Iterator[Root]:
    with open_root(str(path), Scope(anywhere=True), Pins()) as root:
        yield root


async def searched(path: Path, query: ContentQuery, environment: dict[str, str] = NO_PATH, **how: Any) -> SearchMatches:
    with at(path) as root:
        async with asyncio.timeout(60):
            how.setdefault("timeout_seconds", 15)
            conditions = Conditions(environment=environment, confined=how.pop("confined", False))
            return await search(query, root, conditions, **how)


def script(folder: Path, text: str) -> dict[str, str]:
    """A program that passes for ripgrep, and a PATH that leads to it."""
    folder.mkdir(exist_ok=True)
    program = folder / "rg"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def gone(pid: int) -> bool:
    """Whether a process ends, given some time."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if not os.path.exists(f"/proc/{pid}"):
            return True
        time.sleep(0.01)
    return False


# Where it is.


def test_the_path_comes_first_then_the_environment_of_our_python(tmp_path: Path) -> None:
    environment = script(tmp_path, "exit 1")

    found = list(programs(environment))

    assert found[0] == str(tmp_path / "rg")
    assert found[-1] == str(Path(sys.executable).parent / "rg")


def test_a_relative_place_in_the_path_is_never_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path, "exit 1")
    script(tmp_path / "bin", "exit 1")
    monkeypatch.chdir(tmp_path)

    assert not [program for program in programs({"PATH": f".:bin::{tmp_path}/none"}) if str(tmp_path) in program]


async def test_a_program_that_does_not_run_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a").write_text("beta\n")
    (tmp_path / "rg").write_bytes(b"\x7fELF no such machine")
    (tmp_path / "rg").chmod(0o755)

    found = await searched(tmp_path / "tree", ContentQuery(pattern="beta"), {"PATH": str(tmp_path)})

    assert found == SearchMatches(files=[("a", [])], complete=True, timed_out=False)


# How it is asked.


async def test_no_value_passes_for_an_option(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("--pre=x\n")
    (tmp_path / "--files").write_text("--pre=x\n")

    found = await searched(tmp_path, ContentQuery(pattern="--pre=x", mode="content"))
    with pytest.raises(ToolError, match="unrecognized file type"):
        await searched(tmp_path, ContentQuery(pattern="x", type="py --pre=x"))

    assert found.files == [("--files", [b"1:--pre=x"]), ("a", [b"1:--pre=x"])]


async def test_settings_of_the_user_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("--files-without-match\n")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a").write_text("beta\n")

    found = await searched(
        tmp_path / "tree", ContentQuery(pattern="beta"), {"RIPGREP_CONFIG_PATH": str(tmp_path / "config")}
    )

    assert found.files == [("a", [])]


@pytest.mark.parametrize(
    ("globs", "kind", "expected"),
    [
        ((), None, []),
        (("*.py",), None, ["--type-add=wanted:*.py", "--type=wanted"]),
        (("**/*.py", "*.c"), None, ["--type-add=wanted:*.py", "--type-add=wanted:*.c", "--type=wanted"]),
        (("*",), None, []),
        (("**/*",), "py", ["--type=py"]),
        (("*.py",), "py", ["--type=py", "--glob=*.py"]),
        (("src/**/*.py",), None, ["--glob=src/**/*.py"]),
        (("!*.min.js",), None, ["--glob=!*.min.js"]),
    ],
)
def test_globs_for_names_do_not_overrule_ignore_files(globs: tuple[str, ...], kind: str, expected: list[str]) -> None:
    asked = arguments(ContentQuery(pattern="x", globs=globs, type=kind), in_order=False, is_folder=True)

    assert [word for word in asked if word.startswith(("--type", "--glob")) and word not in ripgrep.NOT_IN] == expected


async def test_what_cannot_be_an_argument_is_refused(tmp_path: Path) -> None:
    for pattern in ("a\0b", "x" * (ripgrep.LONGEST_ARGUMENT + 1), "\ud800"):
        with pytest.raises(ToolError, match="pattern"):
            await searched(tmp_path, ContentQuery(pattern=pattern))


async def test_a_file_is_searched_through_its_descriptor(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("beta\n")

    with at(tmp_path / "a.txt") as root:
        os.rename(tmp_path / "a.txt", tmp_path / "b.txt")
        (tmp_path / "a.txt").write_text("not the one\n")
        result = await search(ContentQuery(pattern="beta"), root, Conditions(environment=NO_PATH), timeout_seconds=15)

    assert result.files == [("", [])]


# What becomes of it.


async def test_its_own_words_tell_what_is_wrong_with_a_pattern(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="unclosed group"):
        await searched(tmp_path, ContentQuery(pattern="be("))


async def test_a_program_that_breaks_off_is_reported(tmp_path: Path) -> None:
    environment = script(tmp_path / "bin", "echo trouble >&2; kill -SEGV $$")

    with pytest.raises(ToolError, match=r"failed with exit code -11. trouble"):
        await searched(tmp_path, ContentQuery(pattern="x"), environment)


async def test_files_that_cannot_be_read_do_not_spoil_the_rest(tmp_path: Path) -> None:
    environment = script(tmp_path / "bin", r"printf './a\0'; exit 2")

    assert (await searched(tmp_path, ContentQuery(pattern="x"), environment)).files == [("a", [])]


async def test_at_the_deadline_it_is_killed_and_what_it_said_is_kept(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    environment = script(tmp_path / "bin", rf"echo $$ > {pid}; printf './a\0'; exec sleep 600")

    found = await searched(tmp_path, ContentQuery(pattern="x"), environment, timeout_seconds=2)

    assert found == SearchMatches(files=[("a", [])], complete=False, timed_out=True)
    assert gone(int(pid.read_text()))


async def test_a_cancelled_search_leaves_no_process_and_no_descriptor(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    environment = script(tmp_path / "bin", f"echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 600")

    with at(tmp_path) as root:
        before = len(os.listdir("/proc/self/fd"))
        task = asyncio.create_task(
            search(ContentQuery(pattern="x"), root, Conditions(environment=environment), timeout_seconds=600)
        )
        async with asyncio.timeout(60):
            while not pid.exists():  # noqa: ASYNC110  # another process makes it
                await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(os.listdir("/proc/self/fd")) == before

    assert gone(int(pid.read_text()))


async def test_endless_output_is_cut_off_and_asked_for_again_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ripgrep, "UNORDERED_BYTES", 1000)
    calls = tmp_path / "calls"
    environment = script(tmp_path / "bin", rf"echo $* >> {calls}; while :; do printf './a\0001:x\n'; done")

    found = await searched(tmp_path, ContentQuery(pattern="x", mode="content"), environment, enough_lines=20)

    assert not found.complete
    assert len(found.files[0][1]) > 20
    assert ["--sort=path" in call for call in calls.read_text().splitlines()] == [False, True]


async def test_more_than_fits_is_found_in_the_order_of_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b/z", "b.x", "a/y", "c", "a/b/c", "a-b"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("beta\n")
    query = ContentQuery(pattern="beta", mode="content")

    whole = await searched(tmp_path, query)
    monkeypatch.setattr(ripgrep, "UNORDERED_BYTES", 1)
    again = await searched(tmp_path, query, enough_lines=100)

    assert [path for path, _ in whole.files] == ["a/b/c", "a/y", "a-b", "b/z", "b.x", "c"]
    assert again == whole


# Confined.


@pytest.mark.skipif(not is_supported(), reason="this kernel has no Landlock")
async def test_a_confined_ripgrep_cannot_be_led_out_of_the_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tree", "out"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("beta\n")
    (tmp_path / "tree" / "link").symlink_to("../out/file")
    # As if the link had taken a file's place after ripgrep looked and before it opened.
    monkeypatch.setattr(ripgrep, "ALWAYS", (*ripgrep.ALWAYS, "--follow"))

    free = await searched(tmp_path / "tree", ContentQuery(pattern="beta"))
    confined = await searched(tmp_path / "tree", ContentQuery(pattern="beta"), confined=True)

    assert free.files == [("file", []), ("link", [])]
    assert confined == SearchMatches(files=[("file", [])], complete=True, timed_out=False)


async def test_ignore_files_above_count_for_a_confined_search_too(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "sub").mkdir()
    for name in ("a.log", "a.txt"):
        (tmp_path / "sub" / name).write_text("beta\n")

    assert (await searched(tmp_path / "sub", ContentQuery(pattern="beta"), confined=True)).files == [("a.txt", [])]


async def test_a_file_is_searched_when_confined(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("beta\n")

    assert (await searched(tmp_path / "a", ContentQuery(pattern="beta"), confined=True)).files == [("", [])]


async def test_without_fences_the_stand_in_does_a_confined_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ripgrep, "is_supported", lambda: False)
    (tmp_path / "a").write_text("beta\n")

    assert await searched(tmp_path, ContentQuery(pattern="beta"), confined=True) == SearchMatches(
        files=[("a", [])], complete=True, timed_out=False, slow=True
    )


async def test_a_program_that_lacks_a_library_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("beta\n")
    environment = script(tmp_path / "bin", "echo no such library >&2; exit 127")

    assert (await searched(tmp_path, ContentQuery(pattern="^beta"), environment)).files == [("a", [])]


# Ignore files that do not end.


@pytest.mark.parametrize("name", [".gitignore", ".ignore", ".rgignore", "sub/.gitignore", "sub/.ignore"])
@pytest.mark.parametrize("kind", ["pipe", "link to a device"])
async def test_a_search_does_not_wait_for_an_ignore_file(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.py").write_text("TODO\n")
    path = tmp_path / name
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")

    found = await searched(tmp_path, ContentQuery(pattern="TODO", mode="files"), timeout_seconds=50)

    assert ([file for file, _ in found.files], found.timed_out) == (["sub/a.py"], False)
