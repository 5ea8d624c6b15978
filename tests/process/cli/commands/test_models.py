"""`parley models`: the configured models, and whether they respond."""

from __future__ import annotations

import json
from typing import Any

import pytest

from parley.models.fake.script import read_script
from parley.testing.model_server import running


def test_what_is_configured_is_listed_without_asking_anybody_and_without_secrets(run: Any) -> None:
    done = run(
        "models",
        ANTHROPIC_API_KEY="sk-hush",
        OPENAI_BASE_URL="http://me:hush@gate.test/v1?key=hush",
        OPENAI_API_KEY="sk-hush",
        ANTHROPIC_MODEL="openai:gpt",
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "hush" not in done.stdout
    assert done.stdout.startswith("default model: openai:gpt (price unknown: costs are null)\n")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["sonnet", "claude-sonnet-5-5", "1,000,000", "known"] in rows
    assert ["anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY"] in rows
    assert ["openai", "http://gate.test/v1", "OPENAI_API_KEY"] in rows


def test_a_check_asks_each_model_once(run: Any) -> None:
    with running(read_script("[[turn]]\ntext = 'OK'\n", "test")) as server:
        done = run("models", "--check", "offline", "sonnet", ANTHROPIC_BASE_URL=server.url)

    assert (done.returncode, done.stderr, len(server.exchanges)) == (0, "", 1)
    first, second = done.stdout.splitlines()
    assert first.startswith("offline            answers (offline, ")
    assert second.startswith("claude-sonnet-5-5  answers (claude-sonnet-5-5, ")


def test_a_check_that_fails_says_why_and_continues(run: Any) -> None:
    done = run("models", "--check", "sonnet", "scripted:nope.toml", "offline")

    assert done.returncode == 1
    rows = done.stdout.splitlines()
    assert rows[0].startswith("sonnet              fails: No API key: set ANTHROPIC_API_KEY")
    assert rows[1].startswith("scripted:nope.toml  fails: cannot read script ")
    assert rows[2].startswith("offline             answers")


def test_without_a_name_the_model_of_a_session_here_is_checked(run: Any) -> None:
    done = run("models", "--check", ANTHROPIC_MODEL="offline")

    assert (done.returncode, done.stdout[:7]) == (0, "offline")


@pytest.mark.parametrize("argv", [["all"], ["--list"], ["--check", "--all"]])
def test_anything_else_is_answered_with_the_usage(run: Any, argv: list[str]) -> None:
    done = run("models", *argv)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == "Usage: parley models [MODEL] ... [--check] [--json]"


def test_the_list_and_the_checks_can_be_json(run: Any) -> None:
    listed = json.loads(run("models", "--json", ANTHROPIC_MODEL="openai:gpt").stdout)
    assert (listed["default"]["model"], listed["default"]["has_price"]) == ("openai:gpt", False)
    assert [row["model"] for row in listed["models"] if row["alias"] == "sonnet"] == ["claude-sonnet-5-5"]
    assert {"backend": "openai", "address": "https://api.openai.com/v1", "key": "none"} in listed["backends"]

    done = run("models", "--check", "offline", "sonnet", "--json")
    works, fails = json.loads(done.stdout)
    assert (done.returncode, works["ok"], works["answered_as"], fails["ok"]) == (1, True, "offline", False)
    assert fails["error"].startswith("No API key")


def test_an_address_that_is_invalid_is_one_sentence(run: Any) -> None:
    done = run("models", OPENAI_BASE_URL="gate.test")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Error: OPENAI_BASE_URL must be a URL that starts with http:// or https://\n"


GATEWAY = {"ANTHROPIC_DEFAULT_SONNET_MODEL": "gw/sonnet", "ANTHROPIC_DEFAULT_HAIKU_MODEL": "gw/haiku"}


def test_what_short_names_stand_for_can_be_set(run: Any) -> None:
    rows = [line.split() for line in run("models", **GATEWAY).stdout.splitlines()]

    assert [row[:2] for row in rows if row[:1] in (["sonnet"], ["haiku"], ["opus"])] == [
        ["opus", "claude-opus-5-5"],
        ["sonnet", "gw/sonnet"],
        ["haiku", "gw/haiku"],
    ]


def test_a_gateway_is_asked_for_its_own_model_names_also_by_agents(run: Any) -> None:
    agent = '{"helper": {"description": "Helps.", "prompt": "Help.", "model": "haiku"}}'
    call = '{ description = "d", prompt = "p", subagent_type = "helper" }'
    texts = "".join(f"[[turn]]\ntext = '{text}'\n" for text in ("Helped.", "Done."))
    script = f"[[turn]]\ntools = [{{ name = 'Task', input = {call} }}]\n{texts}"
    with running(read_script(script, "test")) as server:
        done = run("-p", "--model", "sonnet", "--agents", agent, "go", ANTHROPIC_BASE_URL=server.url, **GATEWAY)
        asked = [exchange.body["model"] for exchange in server.exchanges]

    assert (done.returncode, done.stdout) == (0, "Done.\n")
    assert asked == ["gw/sonnet", "gw/haiku", "gw/sonnet"]


def test_a_check_reaches_the_responses_api(run: Any) -> None:
    with running(read_script("[[turn]]\ntext = 'OK'\n", "test")) as server:
        done = run("models", "--check", "openai-responses:gpt-5", OPENAI_BASE_URL=f"{server.url}/v1")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("openai-responses:gpt-5  answers (gpt-5, ")
    assert [exchange.path for exchange in server.exchanges] == ["/v1/responses"]
