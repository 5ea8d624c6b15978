"""`parley models`: the configured models, and whether they respond."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parley.models.catalog import CHECKED
from parley.models.script import read_script
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
    assert done.stdout.startswith("default model: openai:gpt (no known price)\n")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["sonnet", "claude-sonnet-5-5", "1,000,000", "128,000", "adaptive", "2", "/", "10", "built-in"] in rows
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
    assert (listed["default"]["model"], listed["default"]["price"]) == ("openai:gpt", None)
    assert [row["model"] for row in listed["models"] if row["alias"] == "sonnet"] == ["claude-sonnet-5-5"]
    assert {"backend": "openai", "address": "https://api.openai.com/v1", "key": "none"} in listed["backends"]

    done = run("models", "--check", "offline", "sonnet", "--json")
    works, fails = json.loads(done.stdout)
    assert (done.returncode, works["ok"], works["answered_as"], fails["ok"]) == (1, True, "offline", False)
    assert fails["error"].startswith("No API key")


@pytest.fixture
def configured(tmp_path: Path) -> str:
    """What the user says of models in settings, and in a price file, which is returned."""
    settings = {
        "models": {
            "openai:q": {"contextWindow": 5000},
            "openai:qwen": {"price": {"input": 1, "output": 2}},
            "house-": {"thinking": "adaptive", "efforts": ["low", "high"]},
        }
    }
    (tmp_path / "home" / ".claude").mkdir(parents=True, exist_ok=True)
    (tmp_path / "home" / ".claude" / "settings.json").write_text(json.dumps(settings))
    (tmp_path / "prices.json").write_text(
        '{"openai:": {"input": 3, "output": 4}, "claude-fable": {"input": 5, "output": 6}}'
    )
    return str(tmp_path / "prices.json")


def test_each_value_is_listed_with_its_source(run: Any, tmp_path: Path, configured: str) -> None:
    done = run("models", "--json", PARLEY_PRICES=configured, ANTHROPIC_MODEL="openai:qwen3")
    found, settings = json.loads(done.stdout), str(tmp_path / "home" / ".claude" / "settings.json")

    assert found["default"] == {
        "model": "openai:qwen3",
        "context_window": 5000,
        "max_output_tokens": 32000,
        "thinking": "never",
        "efforts": ["low", "medium", "high", "xhigh", "max"],
        "price": {"input": 1, "output": 2},
        "sources": {"context_window": settings, "max_output_tokens": "assumed", "price": settings},
    }
    assert {row["alias"]: row["sources"]["price"] for row in found["models"] if row["alias"]} == {
        **dict.fromkeys(("default", "inherit", "opus", "sonnet", "haiku", "opusplan"), "built-in"),
        **dict.fromkeys(("best", "fable"), configured),
    }
    nothing = dict.fromkeys(("context_window", "max_output_tokens", "thinking", "efforts", "price"))
    assert found["configured"] == [
        {**nothing, "prefix": "openai:q", "context_window": 5000, "source": settings},
        {**nothing, "prefix": "openai:qwen", "price": {"input": 1, "output": 2}, "source": settings},
        {**nothing, "prefix": "house-", "thinking": "adaptive", "efforts": ["low", "high"], "source": settings},
        {**nothing, "prefix": "openai:", "price": {"input": 3, "output": 4}, "source": configured},
        {**nothing, "prefix": "claude-fable", "price": {"input": 5, "output": 6}, "source": configured},
    ]
    assert found["checked"] == CHECKED


def test_sources_are_listed_for_people_too(run: Any, tmp_path: Path, configured: str) -> None:
    lines = run("models", PARLEY_PRICES=configured).stdout.splitlines()

    [fable] = [line for line in lines if line.startswith("fable")]
    assert fable.endswith(f"5 / 6                 window: built-in, output: built-in, price: {configured}")
    assert ["openai:q…", "5,000", f"{tmp_path}/home/.claude/settings.json"] in [line.split() for line in lines]


@pytest.mark.parametrize("name", ["offlin", "Opus", "sonet"])
def test_a_word_that_is_almost_a_short_name_is_refused_before_any_request(run: Any, name: str) -> None:
    with running(read_script("", "test")) as server:
        checked = run("models", "--check", name, ANTHROPIC_BASE_URL=server.url)
        started = run("-p", "--model", name, "hi", ANTHROPIC_BASE_URL=server.url)

    meant = {"offlin": "offline", "Opus": "opus", "sonet": "sonnet"}[name]
    error = f"unknown model {name!r}. Did you mean {meant}? `parley models` lists the known names."
    assert (checked.returncode, checked.stdout) == (1, f"{name}  fails: {error}\n")
    assert (started.returncode, started.stdout, started.stderr) == (1, "", f"Error: {error}\n")
    assert server.exchanges == []


def test_the_server_may_have_any_other_name(run: Any) -> None:
    with running(read_script("at_end = 'repeat'\n[[turn]]\ntext = 'OK'\n", "test")) as server:
        done = run("models", "--check", "house", "opus4", "openai/gpt", ANTHROPIC_BASE_URL=server.url)

    assert (done.returncode, len(server.exchanges)) == (0, 3)


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
    assert server.exchanges[0].path == "/v1/responses"
