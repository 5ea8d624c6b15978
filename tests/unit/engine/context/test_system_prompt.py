"""The instructions a session gives its model."""

from __future__ import annotations

import pytest

from parley.engine.context.system_prompt import BOUNDARY, DEFAULT, Instructions, render, system_blocks

FACTS = ("Working directory: /work", "Platform: linux")
SURROUNDINGS = "Surroundings:\n- Working directory: /work\n- Platform: linux"


@pytest.mark.parametrize(
    ("instructions", "text"),
    [
        (Instructions(), DEFAULT),
        (Instructions(environment=FACTS), f"{DEFAULT}\n\n{BOUNDARY}\n\n{SURROUNDINGS}"),
        (
            Instructions(environment=FACTS, appended="Be brief."),
            f"{DEFAULT}\n\nBe brief.\n\n{BOUNDARY}\n\n{SURROUNDINGS}",
        ),
        (Instructions(appended="Be brief."), f"{DEFAULT}\n\nBe brief."),
        (
            Instructions(environment=FACTS, appended="Be brief.", style="In verse.", memory=lambda: "Use tabs."),
            f"{DEFAULT}\n\nIn verse.\n\nBe brief.\n\n{BOUNDARY}\n\n{SURROUNDINGS}\n\nUse tabs.",
        ),
        (Instructions(replaced="You are a cat.", style="In verse.", memory=lambda: "Use tabs."), "You are a cat."),
        (Instructions(replaced="You are a cat.", environment=FACTS), "You are a cat."),
        (Instructions(replaced="You are a cat.", appended="Be brief."), "You are a cat.\n\nBe brief."),
        (Instructions(replaced="", environment=FACTS), ""),
        (Instructions(replaced="", appended="Be brief."), "Be brief."),
    ],
)
def test_the_text_is_what_was_given_in_its_order(instructions: Instructions, text: str) -> None:
    assert render(instructions) == text


def test_what_names_the_machine_or_the_folder_is_a_block_of_its_own() -> None:
    blocks = system_blocks(render(Instructions(environment=FACTS, appended="Be brief.")))

    assert [block["text"] for block in blocks] == [f"{DEFAULT}\n\nBe brief.", SURROUNDINGS]


def test_no_text_is_not_a_block() -> None:
    assert system_blocks("") == []
