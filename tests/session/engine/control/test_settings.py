"""Settings in a live session: what the host sees of them, changes, and what that does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.session import SessionHarness

SCRIPT = """
[[turn]]
tools = [{ name = "Bash", input = { command = "echo [$COLOUR]", description = "show" } }]

[[turn]]
text = "Done."
"""
SAY = "[[turn]]\ntext = 'Hello.'"


def outputs(harness: SessionHarness) -> list[str]:
    """What tools gave the model."""
    blocks = [
        block for line in harness.messages("user") for block in line["message"]["content"] if isinstance(block, dict)
    ]
    return [block["content"] for block in blocks if block["type"] == "tool_result"]


def prompts_sent(folder: Path) -> list[str]:
    """The system prompts on record."""
    [log] = (folder / "home" / ".claude" / "projects").rglob("*.jsonl")
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    return [entry["message"]["text"] for entry in entries if entry.get("kind") == "prompt"]


async def test_the_host_sees_every_value_with_the_file_it_comes_from(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text('{"model": "opus", "outputStyle": "default"}')
    async with SessionHarness(tmp_path, SAY, settings='{"language": "de"}') as harness:
        answer = (await harness.request("get_settings"))["response"]["response"]

    project = f"{tmp_path}/.claude/settings.json"
    assert answer["effective"] == {"language": "de", "outputStyle": "default"}
    assert answer["sources"] == [
        {"source": "projectSettings", "path": project, "settings": {"model": "opus", "outputStyle": "default"}},
        {"source": "flagSettings", "path": "--settings", "settings": {"language": "de"}},
    ]
    assert answer["inert"] == [
        {"key": "model", "source": "projectSettings", "path": project, "reason": "the folder is not trusted"}
    ]


async def test_variables_that_the_host_sets_reach_the_next_command(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, SCRIPT, allowed_tools=("Bash",)) as harness:
        answer = await harness.request("apply_flag_settings", settings={"env": {"COLOUR": "red"}})
        harness.prompt("go")
        await harness.receive("result")

    assert answer["response"]["subtype"] == "success"
    assert outputs(harness) == ["[red]"]


async def test_a_deny_rule_that_the_host_adds_holds_for_the_next_call(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, SCRIPT, allowed_tools=("Bash",)) as harness:
        await harness.request("apply_flag_settings", settings={"permissions": {"deny": ["Bash"]}})
        harness.prompt("go")
        result = await harness.receive("result")

    assert [denial["tool_name"] for denial in result["permission_denials"]] == ["Bash"]


async def test_a_model_that_the_host_sets_is_the_next_turns_and_null_goes_back(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, SAY) as harness:
        models = []
        for model in ("offline", None):
            await harness.request("apply_flag_settings", settings={"model": model})
            harness.prompt("say Hi")
            models.append((await harness.receive("system", "init"))["model"])
            await harness.receive("result")

    assert models == ["offline", f"scripted:{tmp_path}/script.toml"]


@pytest.mark.parametrize(
    ("subtype", "fields", "words"),
    [
        ("apply_flag_settings", {"settings": {"model": 5}}, "model must be a string"),
        (
            "apply_flag_settings",
            {"settings": {"permissions": {"deny": ["Bash("]}}},
            "the deny rule 'Bash(' is malformed",
        ),
        ("apply_flag_settings", {"settings": {"language": "de", "model": "scripted:none"}}, "none"),
        ("update_settings", {"source": "userSettings", "settings": {"hooks": {}}}, "a client cannot set hooks"),
        ("update_settings", {"source": "projectSettings", "settings": {"model": "x"}}, "not 'projectSettings'"),
    ],
)
async def test_a_wrong_change_is_refused_and_changes_nothing(
    tmp_path: Path, subtype: str, fields: dict[str, Any], words: str
) -> None:
    async with SessionHarness(tmp_path, SAY) as harness:
        refused = (await harness.request(subtype, **fields))["response"]
        after = (await harness.request("get_settings"))["response"]["response"]

    assert (refused["subtype"], words in refused["error"]) == ("error", True)
    assert (after["effective"], after["sources"]) == ({}, [])


async def test_an_update_is_kept_for_the_sessions_to_come(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, SAY) as harness:
        await harness.request("update_settings", source="userSettings", settings={"language": "de"})
    async with SessionHarness(tmp_path, SAY) as harness:
        later = (await harness.request("get_settings"))["response"]["response"]

    assert later["effective"] == {"language": "de"}


# Memory and style.


async def test_memory_and_style_end_the_prompt_that_is_on_record(tmp_path: Path) -> None:
    styles = tmp_path / ".claude" / "output-styles"
    styles.mkdir(parents=True)
    (styles / "verse.md").write_text("Answer in verse.")
    (tmp_path / ".claude" / "settings.json").write_text('{"outputStyle": "verse"}')
    (tmp_path / "CLAUDE.md").write_text("Use tabs.")
    async with SessionHarness(tmp_path, SAY) as harness:
        harness.prompt("go")
        init = await harness.receive("system", "init")
        await harness.receive("result")

    [prompt] = prompts_sent(tmp_path)
    assert init["output_style"] == "verse"
    assert "\n\nAnswer in verse.\n\n" in prompt
    assert prompt.endswith(f"Contents of {tmp_path}/CLAUDE.md:\n\nUse tabs.")


async def test_a_resumed_session_keeps_the_prompt_it_began_with(tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").write_text("Use tabs.")
    async with SessionHarness(tmp_path, SAY) as harness:
        harness.prompt("go")
        await harness.receive("result")
    (tmp_path / "CLAUDE.md").write_text("Use blanks.")
    async with SessionHarness(tmp_path, SAY, resume=harness.session.id) as again:
        again.prompt("go on")
        await again.receive("result")

    [prompt] = prompts_sent(tmp_path)
    assert "Use tabs." in prompt


async def test_a_memory_file_that_a_rule_denies_is_not_reported(tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").write_text("See @secret.md.")
    (tmp_path / "secret.md").write_text("hush")
    rules = json.dumps({"permissions": {"deny": ["Read(./secret.md)"]}})
    async with SessionHarness(tmp_path, SAY, settings=rules) as harness:
        harness.prompt("go")
        await harness.receive("result")

    [prompt] = prompts_sent(tmp_path)
    assert "hush" not in prompt
    assert [warning for warning in harness.warnings if "denied by a rule" in warning]


@pytest.mark.parametrize(
    "options", [{"system_prompt": "You are a cat."}, {"bare": True}, {"setting_sources": ("user",)}]
)
async def test_a_prompt_of_ones_own_and_sources_that_are_off_leave_memory_out(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    (tmp_path / "CLAUDE.md").write_text("Use tabs.")
    async with SessionHarness(tmp_path, SAY, **options) as harness:
        harness.prompt("go")
        await harness.receive("result")

    assert "Use tabs." not in prompts_sent(tmp_path)[0]
