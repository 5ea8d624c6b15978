"""What an error of a model server advises."""

from __future__ import annotations

from typing import Any

import pytest

from parley.errors import ModelError
from parley.models.advice import add_advice, find_similar_model
from parley.models.endpoint import ModelEndpoint

LISTING = "`parley models` lists the known names."


def advice(status: int, message: str, model: str = "m", base_url: str = "http://127.0.0.1:1", **fields: Any) -> str:
    error = ModelError(message, status=status)
    add_advice(error, ModelEndpoint(base_url=base_url, auth=None, **fields), model)
    return error.advice


@pytest.mark.parametrize(
    ("status", "source", "variables", "expected"),
    [
        (401, "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC", "Check the key from ANTHROPIC_AUTH_TOKEN."),
        (401, "OPENAI_API_KEY", "OPENAI", "Check the key from OPENAI_API_KEY."),
        (401, "", "ANTHROPIC", "No key was sent: set ANTHROPIC_API_KEY."),
        (403, "", "OPENAI", "No key was sent: set OPENAI_API_KEY."),
        (403, "apiKeyHelper", "ANTHROPIC", "The key from apiKeyHelper does not have permission for this."),
        (400, "OPENAI_API_KEY", "OPENAI", ""),
        (500, "OPENAI_API_KEY", "OPENAI", ""),
    ],
)
def test_a_rejected_key_is_named_by_its_source(status: int, source: str, variables: str, expected: str) -> None:
    assert advice(status, "no", key_source=source, variables=variables) == expected


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("clade-sonnet-5-5", "claude-sonnet-5-5"),
        ("claude-sonet-4-5-20250929", "claude-sonnet-4-5"),
        ("opus-5-5", "claude-opus-5-5"),
        ("Offline", "offline"),
        ("openai/gpt", "openai:gpt"),
        ("openai-responses/gpt-5", "openai-responses:gpt-5"),
        ("nobody/gpt", None),
        ("qwen3", None),
        ("", None),
    ],
)
def test_a_misspelt_name_is_compared_with_the_known_ones(name: str, meant: str | None) -> None:
    assert find_similar_model(name) == meant


def test_a_model_that_the_messages_api_does_not_have_may_be_misspelt() -> None:
    assert advice(404, "model: opuss", "opuss") == f"Did you mean opus? {LISTING}"
    assert advice(404, "model: qwen3", "qwen3") == LISTING


def test_the_models_of_another_server_are_unknown_here() -> None:
    found = advice(404, "no such model", "opuss", base_url="http://me:pw@h.test/v1?key=k", variables="OPENAI")

    assert found == "The server may list its models at http://h.test/v1/models."


@pytest.mark.parametrize(
    ("variables", "url", "expected"),
    [
        ("OPENAI", "http://h:1", "Try OPENAI_BASE_URL=http://h:1/v1"),
        ("OPENAI", "http://h:1/", "Try OPENAI_BASE_URL=http://h:1/v1"),
        ("OPENAI", "http://h:1/v1/chat/completions", "Try OPENAI_BASE_URL=http://h:1/v1"),
        ("OPENAI", "http://h:1/v1", "Check OPENAI_BASE_URL (http://h:1/v1)."),
        ("OPENAI", "http://h:1/api/v3/x", "Check OPENAI_BASE_URL (http://h:1/api/v3/x)."),
        ("OPENAI", "http://me:pw@h:1?key=k", "Try OPENAI_BASE_URL=http://h:1/v1"),
        ("ANTHROPIC", "http://h:1/v1", "Try ANTHROPIC_BASE_URL=http://h:1"),
        ("ANTHROPIC", "http://h:1/v1/messages/", "Try ANTHROPIC_BASE_URL=http://h:1"),
        ("ANTHROPIC", "http://h:1", "Check ANTHROPIC_BASE_URL (http://h:1)."),
    ],
)
@pytest.mark.parametrize("status", [404, 405])
def test_a_path_that_the_server_does_not_have_suggests_a_url(
    status: int, variables: str, url: str, expected: str
) -> None:
    assert advice(status, "Not Found", base_url=url, variables=variables) == expected
