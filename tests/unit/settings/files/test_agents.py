"""Subagents defined in files and on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.errors import UsageError
from parley.settings.files.agents import NOT_TRUSTED, from_command_line, load_agents

WHOLE = """\
---
name: reviewer
description: "Reads: all of it"
tools: Read, Bash(git log, git show)
model: haiku
maxTurns: 3
permissionMode: acceptEdits
colour: red
---
You review.
"""


def test_a_file_becomes_an_agent(tmp_path: Path) -> None:
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "any.md").write_text(WHOLE)

    found, problems = load_agents(tmp_path, None)

    assert problems == []
    kind = found["reviewer"]
    assert (kind.description, kind.prompt, kind.model, kind.maxTurns) == ("Reads: all of it", "You review.", "haiku", 3)
    assert kind.tools == ["Read", "Bash(git log, git show)"]
    assert kind.permissionMode == "acceptEdits"


def test_what_would_widen_a_session_needs_trust(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(WHOLE)

    found, [problem] = load_agents(tmp_path, (str(tmp_path),), withheld=NOT_TRUSTED)

    assert not isinstance(found["reviewer"].permissionMode, str)
    assert "permissionMode" in str(problem)


@pytest.mark.parametrize(
    "text",
    [
        "---\nname: [a\n---\n",
        "no head at all",
        "---\nname: a\n---\nno description",
        "---\nname: 3\ndescription: d\n---\n",
        "---\nname: a\ndescription: d\nmaxTurns: many\n---\n",
        "---\nname: a\n",
    ],
)
def test_a_file_that_cannot_be_used_costs_only_itself(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.md").write_text(text)
    (tmp_path / "good.md").write_text(WHOLE)

    found, [problem] = load_agents(tmp_path, None)

    assert list(found) == ["reviewer"]
    assert "bad.md" in str(problem)


def test_a_link_out_of_the_project_is_not_followed(tmp_path: Path) -> None:
    secret, project = tmp_path / "secret.md", tmp_path / "project"
    secret.write_text(WHOLE)
    project.mkdir()
    (project / "a.md").symlink_to(secret)

    found, problems = load_agents(project, (str(project),))

    assert found == {}
    assert len(problems) == 1


def test_the_command_line_has_them_as_json_or_in_a_file(tmp_path: Path) -> None:
    text = '{"a": {"description": "d", "prompt": "p"}}'
    (tmp_path / "agents.json").write_text(text)

    assert from_command_line(text) == from_command_line(str(tmp_path / "agents.json"))
    assert from_command_line(None) == {}


@pytest.mark.parametrize("text", ["{", '{"a": 1}', '{"a": {"prompt": "p"}}', "no-such-file.json"])
def test_a_command_line_that_is_wrong_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--agents"):
        from_command_line(text)


def test_an_agent_of_the_command_line_that_is_invalid_is_named() -> None:
    text = '{"good": {"description": "d", "prompt": "p"}, "bad": {"prompt": "p"}}'
    with pytest.raises(UsageError, match=r"invalid agent 'bad': .* field `description`"):
        from_command_line(text)
