"""Model calls that fail: what a user reads on stderr and in the result, and how often they are retried."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from parley.models.script import read_script
from parley.testing.model_server import running
from tests.helpers.ports import free_port


@pytest.fixture
def closed_port() -> int:
    """A port on which nothing listens."""
    return free_port()


def failing(status: int, message: str) -> Any:
    """A server that answers every request with an error."""
    error = f'error = {{ status = {status}, type = "x", message = "{message}" }}'
    return running(read_script(f"at_end = 'repeat'\n[[turn]]\n{error}\n", "test"))


@pytest.mark.parametrize("path", ["", "/v1"])
def test_a_server_that_does_not_run_is_named_from_the_first_retry_on(run: Any, closed_port: int, path: str) -> None:
    url = f"http://127.0.0.1:{closed_port}{path}"
    variables = {"OPENAI_BASE_URL": url} if path else {"ANTHROPIC_BASE_URL": url}
    done = run("-p", "--model", "openai:m" if path else "sonnet", "hi", **variables)

    cause = f"connection refused by {url}: nothing listens there"
    assert (done.returncode, done.stdout) == (1, f"API Error: {cause}\n")
    first, second = done.stderr.splitlines()
    assert first.startswith(f"the model call failed ({cause}); retrying in 0.")
    assert (first[-8:], second[-8:]) == ("(1 of 2)", "(2 of 2)")


def test_a_retry_line_has_the_cause(run: Any, closed_port: int) -> None:
    url = f"http://127.0.0.1:{closed_port}"
    done = run("-p", "--verbose", "--output-format", "stream-json", "hi", ANTHROPIC_BASE_URL=url)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    retries = [line for line in lines if line.get("subtype") == "api_retry"]

    assert [(line["attempt"], line["max_retries"], line["error_status"]) for line in retries] == [
        (1, 2, None),
        (2, 2, None),
    ]
    assert {line["error_message"] for line in retries} == {f"connection refused by {url}: nothing listens there"}
    assert done.stderr == ""


def test_a_host_that_does_not_exist_is_named(run: Any) -> None:
    url = "http://no-such-host.invalid"
    done = run("-p", "hi", ANTHROPIC_BASE_URL=url, ANTHROPIC_API_KEY="a-key", CLAUDE_CODE_MAX_RETRIES="1")

    assert f"the model call failed (the host name of {url} cannot be resolved (" in done.stderr
    assert done.stdout.startswith(f"API Error: the host name of {url} cannot be resolved (")


def test_control_characters_of_a_server_do_not_reach_the_terminal(run: Any) -> None:
    with failing(529, "busy\\u001b[2J") as server:
        done = run("-p", "hi", ANTHROPIC_BASE_URL=server.url, CLAUDE_CODE_MAX_RETRIES="1")

    assert r"(server_error, status 529: busy\x1b[2J)" in done.stderr


@pytest.mark.parametrize(
    ("status", "requests", "advice"),
    [(401, 3, "Check the key from {key}."), (403, 1, "The key from {key} does not have permission for this.")],
)
@pytest.mark.parametrize("key", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY"])
def test_a_rejected_key_is_named_by_its_variable(run: Any, key: str, status: int, requests: int, advice: str) -> None:
    with failing(status, "no") as server:
        urls = {"ANTHROPIC_BASE_URL": server.url, "OPENAI_BASE_URL": f"{server.url}/v1"}
        model = "openai:m" if key.startswith("OPENAI") else "sonnet"
        done = run("-p", "--model", model, "hi", **urls, **{key: "a-key-for-tests"})

    assert done.stdout == f"API Error: {status} no. {advice.format(key=key)}\n"
    assert len(server.exchanges) == requests


def test_a_model_that_the_server_does_not_have_may_be_misspelt(run: Any) -> None:
    with failing(404, "model: clade-sonnet-5-5") as server:
        done = run("-p", "--model", "clade-sonnet-5-5", "hi", ANTHROPIC_BASE_URL=server.url)

    hint = "Did you mean claude-sonnet-5-5? `parley models` lists the known names."
    assert (done.returncode, done.stdout) == (1, f"API Error: 404 model: clade-sonnet-5-5. {hint}\n")


@pytest.mark.parametrize("model", ["openai:m", "openai-responses:m"])
def test_a_base_url_without_its_version_names_the_url_to_try(run: Any, model: str) -> None:
    with running(read_script("", "test")) as server:
        done = run("-p", "--model", model, "hi", OPENAI_BASE_URL=server.url)

    assert done.returncode == 1
    assert done.stdout.endswith(f" Try OPENAI_BASE_URL={server.url}/v1\n")


@pytest.mark.parametrize("port", ["65536", "99999999", "x"])
def test_a_port_that_does_not_exist_is_a_mistake_in_the_environment(run: Any, port: str) -> None:
    done = run("-p", "hi", ANTHROPIC_BASE_URL=f"http://127.0.0.1:{port}/")

    error = "Error: ANTHROPIC_BASE_URL: the port of a URL must be a number from 0 to 65535\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", error)


@pytest.mark.skipif(os.geteuid() != 0, reason="it is about root")
@pytest.mark.parametrize("flags", [("--permission-mode", "bypassPermissions"), ("--dangerously-skip-permissions",)])
def test_root_is_told_when_permissions_may_be_bypassed(run: Any, flags: tuple[str, ...]) -> None:
    prompt = 'call Bash {"command": "id -u"}\nshow'
    refused = run("-p", "--model", "offline", *flags, prompt)
    allowed = run("-p", "--model", "offline", *flags, prompt, IS_SANDBOX="1")

    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.endswith(
        "in a container or another sandbox, where nothing can be damaged, set IS_SANDBOX=1\n"
    )
    assert (allowed.returncode, allowed.stdout) == (0, "0\n")


@pytest.mark.parametrize(
    ("model", "variables", "advice"),
    [
        ("qwen3", {"OPENAI_BASE_URL": "http://u:p@127.0.0.1:1/v1"}, "(http://127.0.0.1:1/v1), use openai:qwen3."),
        ("ollama:qwen3", {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, "use openai:qwen3."),
        ("ollama:qwen3", {}, "use openai:qwen3 and set OPENAI_BASE_URL, such as http://localhost:11434/v1."),
    ],
)
def test_the_name_of_another_server_s_model_says_how_to_reach_it(
    run: Any, model: str, variables: dict[str, str], advice: str
) -> None:
    done = run("-p", "--model", model, "hi", **variables)

    assert done.returncode == 1
    assert f"'{model}' is not a model of Anthropic. For " in done.stderr
    assert done.stderr.rstrip().endswith(advice)


@pytest.mark.parametrize(
    ("model", "is_other"), [("gpt-4o", True), ("llama3", True), ("sonnet", False), ("opus", False)]
)
def test_without_a_key_the_name_of_another_server_s_model_says_how_to_reach_it(
    run: Any, model: str, is_other: bool
) -> None:
    done = run("-p", "--model", model, "hi")

    assert done.returncode == 1
    assert done.stdout.startswith("No API key: set ANTHROPIC_API_KEY")
    assert (f"'{model}' is not a model of Anthropic. For a server with" in done.stdout) == is_other
    assert (f"use openai:{model} and set OPENAI_BASE_URL" in done.stdout) == is_other
