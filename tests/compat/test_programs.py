"""Programs from the registries run on Parley without a change: a handful; `make programs` runs them all."""

from __future__ import annotations

import pytest

from tests.compat.harness import installed
from tests.programs.__main__ import RECIPES, read_recipe, read_recipes, run_recipe

HANDFUL = ("claude_cli_sdk.py", "claude_code_mcp.py", "mcp_memory.py", "pyclaudecli.py")


@pytest.mark.parametrize("name", HANDFUL)
def test_a_program_runs_on_parley(name: str) -> None:
    recipe = read_recipe(RECIPES / name)
    installed(recipe.client())
    outcome = run_recipe(recipe)
    assert outcome.status == "passed", outcome.output


def test_every_recipe_names_its_program_and_version() -> None:
    for recipe in read_recipes():
        assert all(recipe.program), recipe.name
    assert not any(recipe.program[1] for recipe in read_recipes(newest=True))
