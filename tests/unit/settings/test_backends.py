"""The base URLs of model backends, and which key is sent where."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.errors import ModelError, UsageError
from parley.models.backends.responses import OpenAIResponses
from parley.models.catalog import BACKENDS, OPENAI, model_info
from parley.models.endpoint import ModelEndpoint
from parley.settings import credentials
from parley.settings.credentials import CredentialSources
from parley.settings.secret_variables import is_secret


def places(**environment: str) -> CredentialSources:
    return CredentialSources(flag=None, environment=environment, settings={}, home=Path("/nowhere"))


def test_each_server_gets_its_own_key() -> None:
    both = {"ANTHROPIC_API_KEY": "sk-a", "OPENAI_API_KEY": "sk-o", "ANTHROPIC_CUSTOM_HEADERS": "x-a: 1"}

    assert credentials.find_endpoint("anthropic", places(**both)) == ModelEndpoint(
        base_url="https://api.anthropic.com",
        auth=("x-api-key", "sk-a"),
        headers={"x-a": "1"},
        key_source="ANTHROPIC_API_KEY",
    )
    assert credentials.find_endpoint("openai", places(**both)) == ModelEndpoint(
        base_url="https://api.openai.com/v1",
        auth=("authorization", "Bearer sk-o"),
        declared=OPENAI.own_fields,
        variables="OPENAI",
        key_source="OPENAI_API_KEY",
    )


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080/v1", "http://localhost:11434/v1", "http://[::1]:1"])
def test_a_server_on_this_machine_needs_no_key(url: str) -> None:
    assert credentials.find_endpoint("openai", places(OPENAI_BASE_URL=url)) == ModelEndpoint(
        base_url=url, auth=None, variables="OPENAI"
    )
    assert credentials.find_endpoint("anthropic", places(ANTHROPIC_BASE_URL=url)) == ModelEndpoint(
        base_url=url, auth=None
    )


def test_another_server_needs_a_key_or_headers_of_its_own() -> None:
    azure = {"OPENAI_BASE_URL": "https://x.test/openai", "OPENAI_CUSTOM_HEADERS": "api-key: k"}

    assert credentials.find_endpoint("openai", places(**azure)) == ModelEndpoint(
        base_url="https://x.test/openai",
        auth=None,
        headers={"api-key": "k"},
        variables="OPENAI",
        key_source="OPENAI_CUSTOM_HEADERS",
    )
    with pytest.raises(ModelError, match="set OPENAI_API_KEY"):
        credentials.find_endpoint("openai", places(OPENAI_BASE_URL="https://x.test"))


@pytest.mark.parametrize("url", ["ftp://x.test", "x.test", "http://", "file:///etc/passwd", "https:/x.test"])
def test_an_address_that_is_not_http_is_a_mistake_in_the_environment(url: str) -> None:
    with pytest.raises(UsageError, match="OPENAI_BASE_URL must be a URL"):
        credentials.check_backend("openai", {"OPENAI_BASE_URL": url})
    with pytest.raises(UsageError, match="ANTHROPIC_BASE_URL must be a URL"):
        credentials.check_backend("anthropic", {"ANTHROPIC_BASE_URL": url})


def test_what_a_server_knows_can_be_declared() -> None:
    local = {"OPENAI_BASE_URL": "http://localhost/v1"}

    assert credentials.find_endpoint(
        "openai", places(**local, PARLEY_OPENAI_FIELDS="response_format, reasoning_content,")
    ).declared == {
        "response_format",
        "reasoning_content",
    }
    assert (
        credentials.find_endpoint("openai", places(OPENAI_API_KEY="k", PARLEY_OPENAI_FIELDS="")).declared == frozenset()
    )


def test_a_token_of_a_subscription_is_not_a_key_here_either() -> None:
    with pytest.raises(ModelError, match="accepts only API keys"):
        credentials.find_endpoint("openai", places(OPENAI_API_KEY="sk-ant-oat01-x"))


LOCAL = {"OPENAI_BASE_URL": "http://localhost:1/v1"}


@pytest.mark.parametrize(
    ("name", "environment", "thinking", "schemas"),
    [
        ("gpt-5", {}, "effort", True),
        ("gpt-4o", {}, "never", True),
        ("qwen3", LOCAL, "effort", False),
        ("qwen3", {**LOCAL, "PARLEY_OPENAI_FIELDS": "response_format"}, "effort", True),
    ],
)
def test_reasoning_is_part_of_the_responses_api_and_schemas_are_declared(
    name: str, environment: dict[str, str], thinking: str, schemas: bool
) -> None:
    declared = credentials.declared_fields(OPENAI, environment)
    info = OpenAIResponses.adapt_info(model_info(name), name, declared)

    assert (info.thinking, bool(info.efforts), info.supports_schemas) == (thinking, thinking == "effort", schemas)


SERVERS = {name: row.server for name, row in BACKENDS.items() if row.server is not None}


@pytest.mark.parametrize("name", SERVERS)
def test_no_command_receives_the_key_of_a_server(name: str) -> None:
    variables = SERVERS[name].variables

    assert is_secret(f"{variables}_API_KEY", "k")
    assert is_secret(f"{variables}_CUSTOM_HEADERS", "x: k")
