"""The environment of child processes, and the variables that the engine reads."""

from __future__ import annotations

import pytest

from parley.errors import ModelError, UsageError
from parley.settings.env_vars import (
    child_environment,
    custom_headers,
    extra_body,
    read_int,
    read_int_or,
    state_events,
    takes_rate_limits,
)


def test_children_see_everything_but_keys_and_passwords() -> None:
    environment = {
        "PATH": "/bin",
        "ANTHROPIC_API_KEY": "k",
        "ANTHROPIC_AUTH_TOKEN": "t",
        "ANTHROPIC_CUSTOM_HEADERS": "x-key: k",
        "OPENAI_API_KEY": "k",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=k",
        "ANTHROPIC_BASE_URL": "https://me:hush@gateway.test/v1",
        "HOMEPAGE": "https://gateway.test/a@b",
    }
    assert child_environment(environment) == {
        "PATH": "/bin",
        "HOMEPAGE": "https://gateway.test/a@b",
        "CLAUDE_CODE_ENTRYPOINT": "sdk-cli",
        "CLAUDECODE": "1",
    }


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"CLAUDE_CODE_SDK_READS_SESSION_STATE": "1"}, "sdk"),
        ({"CLAUDE_CODE_SDK_READS_SESSION_STATE": "0"}, None),
        ({"CLAUDE_CODE_SDK_READS_SESSION_STATE": "1", "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "true"}, "all"),
    ],
)
def test_session_states_are_reported_to_those_who_asked(environment: dict[str, str], expected: str | None) -> None:
    assert state_events(environment) == expected


def test_a_number_that_is_invalid_is_a_clear_error() -> None:
    assert (read_int({"N": "5"}, "N"), read_int({}, "N"), read_int_or({"N": "0"}, "N", 8)) == (5, None, 0)
    with pytest.raises(UsageError, match="N must be a whole number, not 'x'"):
        read_int({"N": "x"}, "N")


def test_headers_are_lines_and_a_body_is_an_object() -> None:
    assert custom_headers("X-One: 1\nbroken\nx-two:2") == {"x-one": "1", "x-two": "2"}
    assert (extra_body(None), extra_body('{"a": 1}')) == ({}, {"a": 1})
    with pytest.raises(ModelError, match="not a JSON object"):
        extra_body("[1]")


@pytest.mark.parametrize(
    ("entrypoint", "version", "takes"),
    [
        (None, None, True),
        ("sdk-cli", None, True),
        ("sdk-ts", "0.3.326", True),
        ("sdk-py", "0.2.184", True),
        ("sdk-py", "0.1.50", True),
        ("sdk-py", "0.1.20", False),
        ("sdk-py", "new", False),
        ("sdk-py", None, False),
        ("sdk-go", "1.0", False),
    ],
)
def test_a_line_about_the_quota_goes_only_to_those_who_survive_it(
    entrypoint: str | None, version: str | None, takes: bool
) -> None:
    given = {"CLAUDE_CODE_ENTRYPOINT": entrypoint, "CLAUDE_AGENT_SDK_VERSION": version}

    assert takes_rate_limits({name: value for name, value in given.items() if value is not None}) is takes
