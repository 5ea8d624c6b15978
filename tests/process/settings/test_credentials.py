"""The sources of the API key, and that it is never shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from parley.errors import ModelError
from parley.protocol.base import Json
from parley.settings.credentials import ApiCredential, CredentialSources, find_credential, find_source

PATH = {"PATH": "/usr/bin:/bin"}


def places(home: Path, **given: Any) -> CredentialSources:
    return CredentialSources(**{"flag": None, "environment": {}, "settings": {}, "home": home, **given})


def configured(home: Path, content: bytes | Json) -> Path:
    """A home with a config file."""
    path = home / ".config" / "claude" / "config.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content if isinstance(content, bytes) else msgspec.json.encode(content))
    return home


def helper(home: Path, command: str, **environment: str) -> CredentialSources:
    return places(home, settings={"apiKeyHelper": command}, environment={**PATH, **environment})


def why(home: Path, command: str, **environment: str) -> str:
    """The message about a helper that failed."""
    with pytest.raises(ModelError) as raised:
        find_credential(helper(home, command, **environment))
    assert (raised.value.kind, raised.value.retryable) == ("no_key", False)
    return str(raised.value)


FLAG: Json = {"flag": "k-flag"}
KEY: Json = {"environment": {"ANTHROPIC_API_KEY": "k-env", "ANTHROPIC_AUTH_TOKEN": "t-env"}}
TOKEN: Json = {"environment": {"ANTHROPIC_AUTH_TOKEN": "t-env"}}
HELPER: Json = {"settings": {"apiKeyHelper": "echo k-helper"}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({**FLAG, **KEY, **HELPER}, ApiCredential("x-api-key", "k-flag", "--api-key")),
        ({**KEY, **HELPER}, ApiCredential("x-api-key", "k-env", "ANTHROPIC_API_KEY")),
        ({**TOKEN, **HELPER}, ApiCredential("authorization", "t-env", "ANTHROPIC_AUTH_TOKEN")),
        (HELPER, ApiCredential("x-api-key", "k-helper", "apiKeyHelper")),
        ({}, ApiCredential("x-api-key", "k-file", "config.json")),
        (
            {"flag": "", "environment": {"ANTHROPIC_API_KEY": "", "ANTHROPIC_AUTH_TOKEN": ""}},
            ApiCredential("x-api-key", "k-file", "config.json"),
        ),
    ],
)
def test_the_first_place_that_has_a_key_counts(tmp_path: Path, given: Json, expected: ApiCredential) -> None:
    looked = places(configured(tmp_path, {"apiKey": "k-file"}), **given)

    assert find_credential(looked) == expected
    assert find_source(looked) == expected.source


def test_without_any_key_there_is_none(tmp_path: Path) -> None:
    assert find_credential(places(tmp_path)) is None
    assert find_source(places(tmp_path)) == "none"


def test_a_login_of_a_subscription_is_not_a_place(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / ".credentials.json").write_text('{"claudeAiOauth":{"accessToken":"sk-ant-oat01-x"}}')

    assert find_credential(places(tmp_path, environment={"CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-x"})) is None


# The config file.


@pytest.mark.parametrize("name", ["apiKey", "api_key"])
def test_the_config_file_may_spell_the_key_both_ways(tmp_path: Path, name: str) -> None:
    assert find_credential(places(configured(tmp_path, {name: "k-1", "other": 5}))) == ApiCredential(
        "x-api-key", "k-1", "config.json"
    )


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b'{"apiKey":null}', b'{"apiKey":5}', b'{"apiKey":""}', b'{"apiKey":"\xff"}']
)
def test_a_config_file_without_a_key_is_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    assert find_credential(places(configured(tmp_path, content))) is None


# The helper.


def test_a_helper_is_a_command_whose_output_is_the_key(tmp_path: Path) -> None:
    command = 'printf "\\n  %s \\n" "$PREFIX-key" && echo noise >&2'

    assert find_credential(helper(tmp_path, command, PREFIX="k")) == ApiCredential("x-api-key", "k-key", "apiKeyHelper")


def test_a_helper_sees_no_input(tmp_path: Path) -> None:
    assert find_credential(helper(tmp_path, "cat; echo k")) == ApiCredential("x-api-key", "k", "apiKeyHelper")


def test_a_helper_is_not_run_to_tell_where_the_key_comes_from(tmp_path: Path) -> None:
    asked = helper(tmp_path, f"touch {tmp_path}/ran; echo k")

    assert find_source(asked) == "apiKeyHelper"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("echo half-a-key; exit 3", "exit code 3"),
        ("echo half-a-key >&2; false", "exit code 1"),
        ("true", "exit code 0"),
        ("echo '   '", "exit code 0"),
        ("no-such-half-a-key-command", "exit code 127"),
        ("printf 'half-a-key\\377'", "UnicodeDecodeError"),
        ("echo half-a-key\x00", "ValueError"),
        ("echo half-a-key; kill -9 $$", "exit code -9"),
    ],
)
def test_a_helper_that_fails_is_reported_without_a_word_of_its_output(
    tmp_path: Path, command: str, reason: str
) -> None:
    assert why(tmp_path, command) == f"apiKeyHelper failed to print a key: {reason}"


# The key itself.


@pytest.mark.parametrize(
    ("credential", "pair"),
    [
        (ApiCredential("x-api-key", "sk-ant-api03-x", "--api-key"), ("x-api-key", "sk-ant-api03-x")),
        (ApiCredential("authorization", "t-1", "ANTHROPIC_AUTH_TOKEN"), ("authorization", "Bearer t-1")),
        (ApiCredential("x-api-key", " k-1\n", "ANTHROPIC_API_KEY"), ("x-api-key", "k-1")),
    ],
)
def test_a_key_goes_into_its_header(credential: ApiCredential, pair: tuple[str, str]) -> None:
    assert credential.pair() == pair


def refusal(credential: ApiCredential) -> str:
    with pytest.raises(ModelError) as raised:
        credential.pair()
    assert (raised.value.kind, raised.value.retryable) == ("no_key", False)
    return str(raised.value)


@pytest.mark.parametrize("header", ["x-api-key", "authorization"])
@pytest.mark.parametrize("key", ["sk-ant-oat01-hush", "  sk-ant-oat01-hush"])
def test_a_token_of_a_subscription_is_refused_wherever_it_comes_from(header: str, key: str) -> None:
    assert refusal(ApiCredential(header, key, "ANTHROPIC_AUTH_TOKEN")) == (
        "The key from ANTHROPIC_AUTH_TOKEN is a token of a subscription login. Parley accepts only API keys."
    )


@pytest.mark.parametrize("key", ["hush\nhush", "hush hush", "hüsh", "hush\x00", "hush\r\nx-evil: 1"])
def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(key: str) -> None:
    assert refusal(ApiCredential("x-api-key", key, "apiKeyHelper")) == (
        "The key from apiKeyHelper contains spaces, control or non-ASCII characters. API keys contain none of these."
    )


def test_neither_a_credential_nor_its_places_show_a_key(tmp_path: Path) -> None:
    looked = places(
        tmp_path, flag="hush", environment={"ANTHROPIC_API_KEY": "hush"}, settings={"apiKeyHelper": "echo hush"}
    )
    found = find_credential(looked)

    assert [repr(found), str(found), f"{found!r}"] == ["Credential(--api-key)"] * 3
    assert repr(looked) == f"CredentialSources(home='{tmp_path}')"
