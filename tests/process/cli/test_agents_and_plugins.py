"""Agents, skills, commands and plugins through the real executable: rules about them, and bad input of every kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

STREAM = ("-p", "--output-format", "stream-json", "--verbose", "--model", "scripted:script.toml")
Json = dict[str, Any]


@pytest.fixture
def tell(tmp_path: Path, run: Any) -> Any:
    """Run a prompt with a model that makes these calls; returns the messages and stderr."""

    def told(*calls: tuple[str, Json], prompt: str = "go", options: tuple[str, ...] = ()) -> tuple[list[Json], str]:
        inputs = [", ".join(f"{key} = {json.dumps(value)}" for key, value in input.items()) for _, input in calls]
        made = ", ".join(
            f'{{ name = "{name}", input = {{ {one} }} }}' for (name, _), one in zip(calls, inputs, strict=True)
        )
        first = f'[[turn]]\nwhen = "go"\ntools = [{made}]\n' if calls else ""
        (tmp_path / "script.toml").write_text(f'at_end = "repeat"\n{first}[[turn]]\ntext = "Done."\n')
        done = run(*STREAM, *options, "--", prompt)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert [line["subtype"] for line in lines if line["type"] == "result"] == ["success"]
        return lines, done.stderr

    return told


def table(value: Json) -> str:
    return "{ " + ", ".join(f"{key} = {json.dumps(one)}" for key, one in value.items()) + " }"


def put(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def results(lines: list[Json]) -> list[str]:
    blocks = [block for line in lines if line["type"] == "user" for block in line["message"]["content"]]
    contents = [block["content"] for block in blocks if block["type"] == "tool_result"]
    return [one if isinstance(one, str) else one[0]["text"] for one in contents]


def agent(kind: str) -> tuple[str, Json]:
    return "Agent", {"description": "d", "prompt": "work", "subagent_type": kind, "run_in_background": False}


# Rules.


def test_a_rule_denies_one_kind_of_agent_and_lets_the_others_work(tell: Any) -> None:
    lines, _ = tell(agent("Explore"), agent("Plan"), options=("--disallowedTools", "Agent(Explore)"))
    denied, done = sorted(results(lines), key=lambda text: "is done" in text)
    assert "Agent(Explore)" in denied
    assert "(Plan) is done" in done
    [result] = [line for line in lines if line["type"] == "result"]
    assert [one["tool_input"]["subagent_type"] for one in result["permission_denials"]] == ["Explore"]


@pytest.mark.parametrize("rule", ["Skill(tidy)", "Skill(tidy:*)"])
def test_a_rule_allows_one_skill_and_no_other(tmp_path: Path, tell: Any, rule: str) -> None:
    for name in ("tidy", "wash"):
        put(tmp_path, f"home/.claude/skills/{name}/SKILL.md", f"---\ndescription: d\n---\nYou {name}.")
    calls = [("Skill", {"skill": "tidy"}), ("Skill", {"skill": "wash"})]
    lines, _ = tell(*calls, options=("--allowedTools", rule))
    allowed, denied = results(lines)
    assert allowed.endswith("You tidy.")
    assert "You wash." not in denied
    [result] = [line for line in lines if line["type"] == "result"]
    assert [one["tool_input"] for one in result["permission_denials"]] == [{"skill": "wash"}]


# Listings.


def test_init_lists_what_files_and_plugins_bring(tmp_path: Path, tell: Any) -> None:
    put(tmp_path, "kit/.claude-plugin/plugin.json", '{"name": "kit", "version": "1.0"}')
    put(tmp_path, "kit/agents/judge.md", "---\ndescription: d\n---\nYou judge.")
    put(tmp_path, "kit/commands/greet.md", "Hello.")
    put(tmp_path, "home/.claude/skills/tidy/SKILL.md", "---\ndescription: d\n---\nTidy.")
    put(tmp_path, ".claude/agents/near.md", "---\ndescription: d\n---\nYou are near.")
    lines, stderr = tell(agent("kit:judge"), options=("--plugin-dir", "kit"))
    init = lines[0]
    assert init["agents"] == ["Bash", "Explore", "general-purpose", "kit:judge", "near", "Plan"]
    assert (init["skills"], init["slash_commands"][:2]) == (["tidy"], ["kit:greet", "tidy"])
    assert init["plugins"] == [{"name": "kit", "path": str(tmp_path / "kit"), "version": "1.0"}]
    assert {"Task", "SendMessage", "Skill", "TaskStop"} <= set(init["tools"])
    assert "(kit:judge) is done" in results(lines)[0]
    assert stderr == ""


def test_the_session_runs_as_an_agent(tmp_path: Path, tell: Any) -> None:
    put(tmp_path, "home/.claude/agents/boss.md", "---\ndescription: d\ntools: Read\n---\nYou lead.")
    lines, _ = tell(options=("--agent", "boss"))
    assert lines[0]["tools"] == ["Read"]


# Bad input: a clear message, and the rest works.


def test_an_agent_file_with_a_broken_head_is_named(tmp_path: Path, tell: Any) -> None:
    put(tmp_path, ".claude/agents/broken.md", "---\nname: [broken\n---\nx")
    put(tmp_path, ".claude/agents/good.md", "---\ndescription: d\n---\nYou are good.")
    lines, stderr = tell()
    assert "broken.md: not used as an agent: line 2: a list has no closing bracket" in stderr
    assert "good" in lines[0]["agents"]


def test_a_skill_name_that_leads_elsewhere_is_refused(tmp_path: Path, tell: Any) -> None:
    put(tmp_path, "home/.claude/skills/tidy/SKILL.md", "---\ndescription: d\n---\nTidy.")
    put(tmp_path, "home/.claude/skills/a..b/SKILL.md", "---\ndescription: d\n---\nOdd.")
    lines, stderr = tell(("Skill", {"skill": "../tidy"}), options=("--allowedTools", "Skill"))
    assert results(lines) == ["'../tidy' is not a valid skill name."]
    assert lines[0]["skills"] == ["tidy"]
    assert "invalid name 'a..b'" in stderr


def test_a_command_that_includes_a_missing_file_says_so_and_is_sent(tmp_path: Path, tell: Any) -> None:
    put(tmp_path, "home/.claude/commands/review.md", "Review it as @docs/rules.md says.")
    lines, _ = tell(prompt="/review")
    [warning] = [line["content"] for line in lines if line.get("subtype") == "informational"]
    assert "docs/rules.md" in warning
    assert "there is no such file" in warning


def test_a_subagent_type_that_no_one_defined_is_reported_with_those_there_are(tell: Any) -> None:
    lines, _ = tell(agent("nobody"))
    assert results(lines) == ["Agent type 'nobody' not found. Available agents: Bash, Explore, general-purpose, Plan"]


def test_a_plugin_folder_without_a_manifest_is_reported_and_the_others_count(tmp_path: Path, tell: Any) -> None:
    (tmp_path / "bare").mkdir()
    put(tmp_path, "kit/.claude-plugin/plugin.json", '{"name": "kit"}')
    lines, stderr = tell(options=("--plugin-dir", "bare", "--plugin-dir", "kit"))
    assert [plugin["name"] for plugin in lines[0]["plugins"]] == ["kit"]
    [error] = lines[0]["plugin_errors"]
    assert (error["plugin"], error["type"]) == ("inline[0]", "manifest-not-found")
    assert "it has no .claude-plugin/plugin.json" in stderr
