"""Commands about the work of a session and its settings, on a real session."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

from parley import get_session_info
from parley.testing import Script
from parley.testing.model_server import running
from tests.helpers.patience import PATIENCE_SECONDS
from tests.helpers.terminal import make_environment
from tests.helpers.terminal_view import PersonView

NO_OUTPUT = "(no output)"
BYPASS: dict[str, Any] = {"permission_mode": "bypassPermissions", "allow_dangerously_skip_permissions": True}


def git(folder: Path, *words: str) -> None:
    names = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "init.defaultBranch=trunk")
    subprocess.run(["git", *names, *words], cwd=folder, check=True, capture_output=True)


async def test_todos_tasks_and_the_last_answer(tmp_path: Path) -> None:
    todos = {"todos": [{"content": "Write tests", "status": "in_progress", "activeForm": "Writing tests"}]}
    async with PersonView(tmp_path, **BYPASS) as view:
        assert await view.run("/todos") == "The session has no todos."
        assert await view.run("/bashes") == "Nothing runs in the background, and nothing has."
        await view.send(f"call TodoWrite {json.dumps(todos)}")
        shown = await view.run("/todos")
        background = {"command": "echo out\x1b[2J; sleep 60", "run_in_background": True, "description": "Wait"}
        await view.send(f"call Bash {json.dumps(background)}\nsay the\x1b[2J end")
        async with asyncio.timeout(PATIENCE_SECONDS):
            output = NO_OUTPUT
            while output == NO_OUTPUT:  # the command has not written yet
                view.answers = ["Wait", "show its output"]
                output = await view.run("/tasks")
        view.answers = ["Wait", "stop it"]
        await view.run("/tasks")
        await view.run("/copy")

    assert shown == "  ◐ Write tests"
    assert output == "out\\x1b[2J\n"
    assert "● Wait running" in view.asked
    assert view.copied == "the\\x1b[2J end"


async def test_the_diff_is_that_of_the_repository_or_of_the_session(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one = 1\ntwo = 2\n")
    async with PersonView(tmp_path, **BYPASS) as view:
        await view.client.seed_read_state(str(tmp_path / "a.py"), 9e12)
        edit = {"file_path": str(tmp_path / "a.py"), "old_string": "two = 2", "new_string": "two = 22"}
        await view.send(f"call Edit {json.dumps(edit)}")
        by_session = await view.run("/diff")
        git(tmp_path, "init")
        git(tmp_path, "add", "a.py")
        git(tmp_path, "commit", "-m", "x")
        clean = await view.run("/diff a.py")
        (tmp_path / "a.py").write_text("one = 1\ntwo = \x1b[2J\n")
        (tmp_path / "new.py").write_text("")
        by_git = await view.run("/diff")

    assert by_session.splitlines() == ["a.py (+1 -1)", "    1  one = 1", "    2 -two = 2", "    2 +two = 22"]
    assert clean == "Nothing has changed."
    assert "    2 +two = \\x1b[2J" in by_git
    assert "new.py (+0 -0)" in by_git


async def test_a_repository_cannot_run_programs_when_its_diff_is_shown(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    git(work, "init")
    (work / "a.txt").write_text("a\n")
    (work / ".gitattributes").write_text("*.txt diff=evil filter=evil\n")
    git(work, "add", ".")
    git(work, "commit", "-m", "x")
    ran = f"touch {tmp_path / 'ran'}; cat"
    for key in ("diff.evil.textconv", "diff.evil.command", "filter.evil.clean", "diff.external", "core.fsmonitor"):
        git(work, "config", key, ran)
    (work / "a.txt").write_text("b\n")
    async with PersonView(work) as view:
        shown = await view.run("/diff")

    assert "+b" in shown
    assert not (tmp_path / "ran").exists()


async def test_plan_mode_a_title_and_a_copy(tmp_path: Path) -> None:
    async with PersonView(tmp_path) as view:
        await view.run("/plan make it good")
        mode = (await view.client.check_permission("Write", {"file_path": "a", "content": ""}))["mode"]
        await view.send("say hi")
        renamed = await view.run("/rename My\x1b[2J work")
        await view.run("/fork A second try")
        info = get_session_info(view.session_id, str(tmp_path), env=make_environment(tmp_path))
        fork = get_session_info(view.switched[0][0], str(tmp_path), env=make_environment(tmp_path))

    assert (view.queued, mode) == (["make it good"], "plan")
    assert info is not None
    assert str(info.custom_title).startswith("My")
    assert "\x1b" not in renamed
    assert fork is not None
    assert (fork.custom_title, fork.first_prompt) == ("A second try", "say hi")
    async with PersonView(tmp_path, resume=view.switched[0][0]) as copy:
        assert "My" not in await copy.run("/status")


async def test_the_last_prompt_is_undone_with_its_changes(tmp_path: Path) -> None:
    async with PersonView(tmp_path, **BYPASS) as view:
        assert await view.run("/undo") == "there is no prompt to undo"
        write = {"file_path": str(tmp_path / "new.txt"), "content": "x\n"}
        await view.send("say first")
        await view.send(f"call Write {json.dumps(write)}")
        view.answers = ["the conversation and the files"]
        await view.run("/undo")

    assert not (tmp_path / "new.txt").exists()
    assert view.typed.startswith("call Write")
    assert view.switched == [(view.session_id, None, view.sent[1][0])]


async def test_settings_are_shown_and_changed(tmp_path: Path) -> None:
    async with PersonView(tmp_path, engine="process") as view:
        view.answers = ["effortLevel", "high", None]
        await view.run("/config")
        vi = await view.run("/vim")
        is_vi = view.is_vi
        await view.run("/vim")
        style = await view.run("/output-style default")
        wrong = await view.run("/config modle x")
        await view.run("/config cleanupPeriodDays 5")
        line = await view.run("/statusline echo hello")
        effective = (await view.client.get_settings())["effective"]
    saved = json.loads((tmp_path / "home/.claude/settings.json").read_text())

    assert vi == "editorMode is vim."
    assert (is_vi, view.is_vi) == (True, False)
    assert style == "outputStyle is default in sessions that start from now on."
    assert "did you mean model?" in wrong
    assert line.startswith("statusLine is {2 keys}")
    assert effective["statusLine"] == saved["statusLine"] == {"type": "command", "command": "echo hello"}
    assert (saved["effortLevel"], saved["cleanupPeriodDays"]) == ("high", 5)


async def test_hooks_are_listed_and_a_folder_is_added(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    hook = {"matcher": "Bash", "hooks": [{"type": "command", "command": "echo \x1b[2J"}]}
    async with PersonView(
        tmp_path, ["for this session"], settings=json.dumps({"hooks": {"PreToolUse": [hook]}})
    ) as view:
        hooks = await view.run("/hooks")
        missing = await view.run("/add-dir nowhere")
        added = await view.run("/add-dir other")
        files = await view.client.check_permission("Read", {"file_path": str(other / "a")})

    assert "PreToolUse Bash" in hooks
    assert "\x1b" not in hooks
    assert "there is no folder" in missing
    assert str(other) in added
    assert str(other) in view.folders
    assert files["decision"] == "allow"


async def test_what_is_to_be_remembered_is_added_to_a_file(tmp_path: Path) -> None:
    from parley.terminal.commands.work import remember

    (tmp_path / "CLAUDE.md").write_text("Use tabs.")
    options: dict[str, Any] = {"system_prompt": {"type": "preset", "preset": "claude_code"}}
    async with PersonView(tmp_path, ["Project"], **options) as view:
        note = await remember(view, "Use spaces.")

    assert (tmp_path / "CLAUDE.md").read_text() == "Use tabs.\n- Use spaces.\n"
    assert note is not None
    assert note.endswith("Use spaces.")


async def test_the_models_of_a_local_server_can_be_chosen(tmp_path: Path) -> None:
    with running(Script(["hi"])) as server:
        view = PersonView(tmp_path, ["openai:"])
        view.options.env["OPENAI_BASE_URL"] = f"{server.url}/v1"
        async with view:
            shown = await view.run("/model")

    [listed] = {line for line in view.asked if "openai:" in line}
    assert f"served by {server.url}/v1" in listed
    assert shown.startswith("The model is openai:")


async def test_a_local_server_that_is_not_there_hides_no_models(tmp_path: Path) -> None:
    view = PersonView(tmp_path, ["haiku"])
    view.options.env["OPENAI_BASE_URL"] = "http://127.0.0.1:9/v1"
    async with view:
        shown = await view.run("/model")

    assert "claude-haiku" in shown
