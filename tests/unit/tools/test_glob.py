"""Glob, on real files: what the model reads and the host sees."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from parley.tools.base import ToolOutput, read_input
from parley.tools.search import MOST_FILES, GlobTool, glob_timeout_seconds
from parley.workspace.base import FileListing, Scope, SearchArea
from parley.workspace.search.search import LocalSearch
from tests.helpers.remote_workspace import make_search
from tests.helpers.tools import ToolHarness


@pytest.fixture
def harness(tmp_path: Path) -> ToolHarness:
    harness = ToolHarness(tmp_path)
    harness.change(open_search=lambda: make_search(harness.context.environment))
    harness.change(clock=lambda: 7.0)
    return harness


def put(harness: ToolHarness, *names: str) -> None:
    """Empty files, each a second younger than the one before."""
    for age, name in enumerate(names, 1):
        path = harness.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (age, age))


def test_paths_are_reported_newest_first(harness: ToolHarness) -> None:
    put(harness, "a.py", "sub/b.py", "c.txt")

    assert harness.call(GlobTool(), pattern="**/*.py") == ToolOutput(
        content="sub/b.py\na.py",
        detail={
            "filenames": ["sub/b.py", "a.py"],
            "durationMs": 0,
            "numFiles": 2,
            "truncated": False,
            "totalMatches": 2,
            "countIsComplete": True,
        },
    )


def test_finding_nothing_is_not_an_error(harness: ToolHarness) -> None:
    result = harness.call(GlobTool(), pattern="*.zzz")

    assert (result.content, result.detail["filenames"], result.is_error) == ("No files found", [], None)


def test_a_relative_path_is_taken_from_the_working_directory(harness: ToolHarness) -> None:
    put(harness, "sub/a.py", "sub/deep/b.py", "c.py")

    assert harness.call(GlobTool(), pattern="*.py", path="sub").content == "sub/deep/b.py\nsub/a.py"
    harness.context.state.cwd = harness.path("sub")
    assert harness.call(GlobTool(), pattern="*.py").content == "deep/b.py\na.py"


def test_more_than_the_limit_is_cut_and_reported(harness: ToolHarness) -> None:
    put(harness, *(f"{number:03}" for number in range(MOST_FILES + 5)))

    result = harness.call(GlobTool(), pattern="*")

    *paths, note = str(result.content).split("\n")
    assert paths == [f"{number:03}" for number in range(MOST_FILES + 4, 4, -1)]
    assert note == "(These are the 100 newest of 105. A narrower pattern or path shows others.)"
    assert [result.detail[key] for key in ("numFiles", "truncated", "totalMatches")] == [100, True, 105]


def test_what_a_rule_denies_is_not_reported(harness: ToolHarness) -> None:
    put(harness, "a.py", "secret.py")
    harness.change(hides=lambda path: path == harness.path("secret.py"))

    assert harness.call(GlobTool(), pattern="*.py").content == "a.py"


def test_the_environment_may_change_what_is_left_out(harness: ToolHarness) -> None:
    put(harness, ".git/x", "a", ".hidden", "ignored")
    (harness.folder / ".gitignore").write_text("ignored\n")
    environment = harness.context.environment

    assert set(str(harness.call(GlobTool(), pattern="*").content).split()) == {".gitignore", "a", ".hidden"}
    environment["CLAUDE_CODE_GLOB_HIDDEN"] = "false"
    assert harness.call(GlobTool(), pattern="*").content == "a"
    environment["CLAUDE_CODE_GLOB_NO_IGNORE"] = "true"
    assert set(str(harness.call(GlobTool(), pattern="*").content).split()) == {"a", "ignored"}


def test_what_is_out_of_reach_is_refused(harness: ToolHarness, tmp_path: Path) -> None:
    harness.reach = Scope(folders=(str(harness.folder),))

    assert "outside the paths that this call may access" in harness.refusal(GlobTool(), pattern="*", path=str(tmp_path))


def test_a_tilde_is_refused_with_advice(harness: ToolHarness) -> None:
    assert "absolute path" in harness.refusal(GlobTool(), pattern="~/notes/*.md")
    assert "absolute path" in harness.refusal(GlobTool(), pattern="*.md", path="~/notes")


def test_a_folder_that_is_missing_is_refused(harness: ToolHarness) -> None:
    assert "does not exist" in harness.refusal(GlobTool(), pattern="*", path="nowhere")


def test_out_of_time_with_something_found_reports_that(harness: ToolHarness) -> None:
    put(harness, "a", "sub/b")
    # The start, the first folder in time, the second too late.
    times = iter([0.0, 1.0])
    harness.change(clock=lambda: next(times, 30.0))

    result = harness.call(GlobTool(), pattern="*")

    assert result.content == "a\n(The search was stopped after 30 seconds; there may be more.)"
    assert (result.detail["timedOut"], result.detail["countIsComplete"]) == (True, False)


def test_out_of_time_with_nothing_found_is_an_error(harness: ToolHarness) -> None:
    put(harness, "a")
    times = iter([0.0])
    harness.change(clock=lambda: next(times, 30.0))

    assert "within 20 seconds" in harness.refusal(GlobTool(), pattern="*")


@pytest.mark.parametrize(("value", "seconds"), [("3.5", 3.5), ("", 20), ("soon", 20), ("-1", 20), ("nan", 20)])
def test_the_time_limit_comes_from_the_environment(value: str, seconds: float) -> None:
    assert glob_timeout_seconds({"CLAUDE_CODE_GLOB_TIMEOUT_SECONDS": value}) == seconds


async def test_a_cancelled_search_stops(harness: ToolHarness) -> None:
    started, ended = threading.Event(), threading.Event()

    class Endless(LocalSearch):
        def files(self, pattern: str, area: SearchArea, *, stop: object, **how: object) -> FileListing:
            assert callable(stop)
            started.set()
            while not stop():
                ended.wait(0.001)
            ended.set()
            return FileListing()

    harness.change(open_search=lambda: Endless({}))

    tool = GlobTool()
    running = tool.run(read_input(tool, {"pattern": "*"}), harness.context, harness.reach)
    task = asyncio.create_task(running)
    assert await asyncio.to_thread(started.wait, 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(ended.wait, 5)
