"""What the model may say to hand work on."""

from __future__ import annotations

import msgspec
import pytest

from parley.protocol.base import Json
from parley.tools.agent import AgentInput
from parley.tools.base import input_schema
from parley.tools.delegation import SkillInput


def test_an_agent_needs_a_description_and_a_prompt() -> None:
    least: Json = {"description": "Do sub", "prompt": "SUBTASK please"}
    assert msgspec.convert(least, AgentInput) == AgentInput(
        description="Do sub", prompt="SUBTASK please", subagent_type="general-purpose"
    )
    assert input_schema(AgentInput)["required"] == ["description", "prompt"]


def test_fields_of_other_versions_are_ignored() -> None:
    told = {"description": "d", "prompt": "p", "subagent_type": "Explore", "team_name": "x", "mode": "plan"}
    assert msgspec.convert(told, AgentInput).subagent_type == "Explore"


@pytest.mark.parametrize("more", [{"model": "gpt"}, {"isolation": "moon"}, {"prompt": ""}])
def test_what_no_agent_understands_is_refused(more: Json) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"description": "d", "prompt": "p", **more}, AgentInput)


def test_a_skill_has_a_name_and_maybe_arguments() -> None:
    assert msgspec.convert({"skill": "review"}, SkillInput) == SkillInput(skill="review")
    assert msgspec.convert({"skill": "review", "args": "all"}, SkillInput).args == "all"
