"""Every public name of the official SDK is one of ours, and is what it is there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import parley
from tests.compat.harness import installed
from tests.compat.install import CURRENT_PYTHON

DRIVER = Path(__file__).parent / "drivers" / "surface.py"
Surface = dict[str, dict[str, Any]]
OF_PYDANTIC = {"copy", "dict", "json", "model_copy", "model_dump", "model_dump_json", "model_post_init"}
"""The official `ToolAnnotations` is a model of the `mcp` package."""
MORE_THAN_OFFICIAL = {"ParleyError"}
MORE_KEYS = {"run"}
"""Keys of what only a callback gets, which no program builds."""


def surface(python: str, module: str, *names: str) -> Surface:
    done = subprocess.run([python, str(DRIVER), module, *names], capture_output=True, text=True, timeout=60, check=True)
    found: Surface = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def both() -> tuple[Surface, Surface]:
    official = surface(str(installed(CURRENT_PYTHON).program()), "claude_agent_sdk")
    return official, surface(sys.executable, "parley", *official)


def test_every_official_name_is_there(both: tuple[Surface, Surface]) -> None:
    official, _ = both

    assert len(official) == 159
    assert sorted(set(official) - set(parley.__all__)) == []


def test_every_name_matches_the_official_package(both: tuple[Surface, Surface]) -> None:
    official, ours = both

    assert {name: problem for name, wanted in official.items() if (problem := differs(wanted, ours[name]))} == {}


def differs(wanted: dict[str, Any], found: dict[str, Any]) -> str | None:
    """What a program of the official SDK would stumble over; None if nothing."""
    if wanted["is"] != found["is"]:
        return f"{found['is']} instead of {wanted['is']}"
    if wanted["is"] == "typed dict":
        same = {
            **found,
            **{part: [key for key in found[part] if key not in MORE_KEYS] for part in ("keys", "required")},
        }
        return None if wanted == same else f"{found} instead of {wanted}"
    if wanted["is"] == "error" and [one for one in found["under"] if one not in MORE_THAN_OFFICIAL] != wanted["under"]:
        return f"it is under {found['under']}"
    if wanted.get("async") != found.get("async"):
        return "one is async and the other is not"
    for part in ("fields", "given"):
        if part in wanted and (problem := takes_less(wanted[part], found[part])):
            return problem
    for name, given in wanted.get("methods", {}).items():
        if name in OF_PYDANTIC:
            continue
        if name not in found["methods"]:
            return f"there is no {name}()"
        if problem := takes_less(given, found["methods"][name]):
            return f"{name}(): {problem}"
    return None


def takes_less(wanted: list[list[Any]], found: list[list[Any]]) -> str | None:
    """What was given by place must stand where it stood; what is new must be optional."""
    if [name for name, _ in found[: len(wanted)]] != [name for name, _ in wanted]:
        return f"{found} instead of {wanted}"
    needed = {name for name, needed in found if needed} - {name for name, needed in wanted if needed}
    return f"{sorted(needed)} must be given" if needed else None


def test_the_rules_of_the_comparison_find_what_they_are_for() -> None:
    assert takes_less([["a", True], ["b", False]], [["a", True], ["b", False], ["c", False]]) is None
    assert takes_less([["a", True], ["b", False]], [["b", False], ["a", True]]) is not None
    assert takes_less([["a", False]], [["a", True]]) == "['a'] must be given"
    assert takes_less([["a", True]], [["a", True], ["b", True]]) == "['b'] must be given"
    assert differs({"is": "typed dict", "keys": ["a"], "required": []}, {"is": "alias"}) is not None


NOT_EXPORTED = (
    *("PermissionRuleValue", "PermissionUpdateDestination", "PermissionBehavior", "HookEvent", "HookSpecificOutput"),
    *("SystemPromptPreset", "SystemPromptCustom", "SystemPromptFile", "ToolsPreset", "ThinkingDisplay"),
    *("McpStdioServerConfig", "McpSSEServerConfig", "McpHttpServerConfig", "McpSdkServerConfigStatus"),
    *("SyncHookJSONOutput", "AsyncHookJSONOutput"),
)
"""Names that the official SDK has in `types` only."""


@pytest.mark.parametrize("name", NOT_EXPORTED)
def test_names_of_the_module_types_are_in_ours(name: str) -> None:
    import parley.types

    assert getattr(parley.types, name) is not None


def test_the_errors_module_has_the_error_that_is_not_exported() -> None:
    from parley._errors import MessageParseError

    assert issubclass(MessageParseError, parley.ClaudeSDKError)
