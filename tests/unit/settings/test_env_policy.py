"""Which environment variables settings may set, and who sees them."""

from __future__ import annotations

import pytest

from parley.settings.base import MergedSettings, SettingsValue, Source
from parley.settings.env_vars import OURS_FROM_TREE, environment_for_commands, is_refused, own_environment


def merged(source: Source, **variables: str) -> MergedSettings:
    return MergedSettings(
        environment={
            name: SettingsValue(value=text, source=source, path=f"{source}.json", root="/")
            for name, text in variables.items()
        }
    )


@pytest.mark.parametrize(
    "name",
    [
        *("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS"),
        *("ANTHROPIC_BEDROCK_BASE_URL", "ANTHROPIC_MODEL_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL", "MY_BASE_URL"),
        *("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "GOOGLE_APPLICATION_CREDENTIALS", "CLAUDE_CODE_OAUTH_TOKEN"),
        *("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_EXTRA_BODY", "CLAUDE_CODE_API_KEY_HELPER_TTL_MS"),
        *("HTTP_PROXY", "https_proxy", "ALL_PROXY", "no_proxy", "PARLEY_SEARCH_URL", "PARLEY_WEBFETCH_ALLOW_PRIVATE"),
        *("NODE_EXTRA_CA_CERTS", "NODE_TLS_REJECT_UNAUTHORIZED", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"),
        *("GIT_SSL_NO_VERIFY", "GIT_SSH_COMMAND", "GIT_ASKPASS", "SSH_ASKPASS", "GIT_CONFIG_COUNT"),
        *("HOME", "CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME", "IS_SANDBOX", "TMPDIR", "CLAUDE_CODE_TMPDIR"),
        *("PATH", "LD_PRELOAD", "BASH_ENV", "ENV", "SHELLOPTS", "IFS", "BASH_FUNC_ls%%", "PROMPT_COMMAND"),
        *("NODE_OPTIONS", "GIT_PAGER", "PAGER", "EDITOR", "GIT_EDITOR", "RIPGREP_CONFIG_PATH", "OTEL_EXPORTER_X"),
    ],
)
def test_what_leads_elsewhere_carries_keys_or_changes_commands_is_refused_from_a_project(name: str) -> None:
    assert is_refused(name)
    assert is_refused(name.lower())


@pytest.mark.parametrize(
    "name",
    [
        *("ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_OPUS_MODEL", "MAX_THINKING_TOKENS"),
        *("NODE_ENV", "DATABASE_URL", "DEBUG", "PYTHONPATH", "CI", "MY_ENV", "PATHS", "HOMEPAGE"),
    ],
)
def test_a_project_may_set_other_variables(name: str) -> None:
    assert not is_refused(name)


def test_no_lookup_that_a_project_may_answer_is_refused() -> None:
    assert [name for name in OURS_FROM_TREE if is_refused(name)] == []


def test_what_settings_say_replaces_what_the_process_was_given() -> None:
    assert environment_for_commands({"A": "0", "B": "0"}, merged("user", A="1")) == {"A": "1", "B": "0"}


def test_our_own_lookups_see_what_the_person_sets() -> None:
    seen = own_environment({"A": "0"}, merged("user", ANTHROPIC_BASE_URL="https://mine.example", A="1"))

    assert seen == {"A": "1", "ANTHROPIC_BASE_URL": "https://mine.example"}


def test_our_own_lookups_see_of_a_project_only_what_concerns_the_conversation() -> None:
    project = merged("project", ANTHROPIC_MODEL="opus", NODE_ENV="test", CLAUDE_CODE_MAX_RETRIES="99")

    assert own_environment({}, project) == {"ANTHROPIC_MODEL": "opus"}
    assert set(environment_for_commands({}, project)) == {"ANTHROPIC_MODEL", "NODE_ENV", "CLAUDE_CODE_MAX_RETRIES"}


@pytest.mark.parametrize("name", ["HOME", "CLAUDE_CONFIG_DIR", "IS_SANDBOX"])
def test_where_we_are_is_said_by_the_real_environment_alone(name: str) -> None:
    assert own_environment({name: "real"}, merged("user", **{name: "set"})) == {name: "real"}
