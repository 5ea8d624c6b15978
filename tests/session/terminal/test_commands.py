"""The slash commands of the terminal, on a real session."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from parley import Client, Options
from tests.helpers import paths
from tests.helpers.terminal import make_environment
from tests.helpers.terminal_view import PersonView

WRITE = """
[[turn]]
tools = [{ name = "Write", input = { file_path = "a.txt", content = "one" } }]
[[turn]]
text = "Written."
"""


async def test_a_rule_is_tested_added_and_removed(tmp_path: Path) -> None:
    async with PersonView(tmp_path) as view:
        before = await view.run("/permissions test Bash git push origin")
        view.answers = ["Add a rule", "deny", "Bash(git push *)", "saved for this project", None]
        await view.run("/permissions")
        saved = json.loads((tmp_path / ".claude" / "settings.local.json").read_text())
        after = await view.run("/permissions test Bash git push origin")
        view.answers = ["git push", True, None]
        removed = await view.run("/permissions")

    assert before.startswith("ask: you are asked\n")
    assert saved == {"permissions": {"deny": ["Bash(git push *)"]}}
    assert "deny: denied" in after
    assert "Bash(git push *)" in after
    assert removed.startswith("Removed: deny Bash(git push *), saved for this project")
    assert json.loads((tmp_path / ".claude" / "settings.local.json").read_text()) == {"permissions": {"deny": []}}


async def test_what_the_engine_refuses_is_shown(tmp_path: Path) -> None:
    async with PersonView(tmp_path) as view:
        unknown = await view.run("/permissions test Fly there")
        wrong = await view.run("/permissions fly")
        model = await view.run("/model no-such:model")

    assert "must be a JSON object" in unknown
    assert "unknown argument 'fly' (choose from test, allow, ask, deny)" in wrong
    assert "no-such" in model


async def test_the_model_and_the_theme_are_chosen(tmp_path: Path) -> None:
    async with PersonView(tmp_path, ["haiku", "light"]) as view:
        assert "claude-haiku" in await view.run("/model")
        assert await view.run("/theme") == "theme is light."
        settings = await view.client.get_settings()

    assert "Model (now offline)" in view.asked
    assert settings["effective"]["theme"] == view.styles.theme.name == "light"


async def test_the_pages_show_what_the_session_knows(tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").write_text("Use tabs.\n")
    async with PersonView(tmp_path, ["Project"], system_prompt={"type": "preset", "preset": "claude_code"}) as view:
        await view.send("say hi")
        context, cost = await view.run("/context"), await view.run("/cost")
        agents, status, help = await view.run("/agents"), await view.run("/status"), await view.run("/help")
        await view.run("/memory")

    assert "Memory files" in context
    assert "░" in context
    assert "offline" in cost
    assert "general-purpose" in agents
    assert view.session_id in status
    assert "/permissions" in help
    assert "/compact" in help
    assert view.edited == [str(tmp_path / "CLAUDE.md")]


async def test_the_doctor_and_the_engine_import_nothing_from_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "parley").mkdir()
    for name in ("contextlib", "json", "msgspec", "sitecustomize", "parley/__init__"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    view = PersonView(tmp_path, engine="process")
    view.options.env["PYTHONPATH"] = os.pathsep  # two empty entries: the working directory
    async with view:
        shown = await view.run("/doctor")

    assert "Parley" in shown
    assert "offline" in shown  # the model of the session
    assert not (tmp_path / "ran").exists()


async def test_a_session_of_another_directory_is_found_and_continued(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    options: Options[None] = Options(cwd=other, model="offline", engine="local", env=make_environment(tmp_path))
    async with Client(options) as client:
        await client.run("say The index is missing.")
        old = client.session_id
    async with PersonView(tmp_path, ["The index"]) as view:
        await view.send("say hi")
        await view.run("/resume")
        none = await view.run("/resume nothing like this")

    assert view.switched == [(old, str(other), None)]
    assert "❯ say The index is missing.\n● The index is missing." in view.asked
    assert none == "No session fits 'nothing like this'."


async def test_the_conversation_is_exported_and_a_file_is_not_replaced_without_a_question(tmp_path: Path) -> None:
    async with PersonView(tmp_path, ["", False]) as view:
        await view.send("say hi")
        await view.run("/export")
        [written] = tmp_path.glob("*.txt")
        text = written.read_text()
        written.write_text("mine")
        await view.run(f"/export {written.name}")

    assert "❯ say hi" in text
    assert written.read_text() == "mine"


async def test_a_server_is_shown_disabled_and_enabled(tmp_path: Path) -> None:
    plain = str(paths.TESTS / "helpers" / "mcp_servers" / "plain.py")
    servers = {"plain": {"command": sys.executable, "args": [plain, "well"]}}
    async with PersonView(tmp_path, mcp_servers=servers) as view:
        await view.send("say hi")
        view.answers = ["plain", "show its tools", "plain", "disable", "plain", "enable", None]
        shown = await view.run("/mcp")

    assert shown.split("\n")[0].startswith("✓ plain: connected, 2 tools")
    assert "  echo" in shown
    assert "○ plain: disabled" in shown
    assert shown.count("connected, 2 tools") == 2


async def test_a_rewind_shows_the_changes_and_restores_files_and_conversation(tmp_path: Path) -> None:
    (tmp_path / "script.toml").write_text(WRITE)
    (tmp_path / "a.txt").write_text("zero\n")
    model = f"scripted:{tmp_path / 'script.toml'}"
    options: dict[str, Any] = {
        "model": model,
        "permission_mode": "bypassPermissions",
        "allow_dangerously_skip_permissions": True,
    }
    async with PersonView(tmp_path, **options) as view:
        nothing = await view.run("/rewind")
        await view.client.seed_read_state(str(tmp_path / "a.txt"), 9e12)
        await view.send("write it")
        changed = (tmp_path / "a.txt").read_text()
        view.answers = ["write it", "the conversation and the files"]
        shown = await view.run("/rewind")

    assert nothing == "There is no earlier message."
    assert (changed, (tmp_path / "a.txt").read_text(), view.typed) == ("one", "zero\n", "write it")
    assert shown.startswith("a.txt (modified)\n    1 -one")
    assert view.switched == [(view.session_id, None, view.prompts[0][0])]
