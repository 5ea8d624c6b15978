"""Settings the person gave."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.errors import UsageError
from parley.protocol.base import Json
from parley.settings.layers import config_folder, given_settings, home, user_settings

WRONG = [
    (b"{", "Input data was truncated"),
    (b"", "Input data was truncated"),
    (b"[]", "Expected `object`, got `array`"),
    (b"{'a': 1}", "JSON is malformed: object keys must be strings (byte 1)"),
    (b'{"a":"\xff"}', "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
]


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"HOME": "/home/ann"}, "/home/ann/.claude"),
        ({"HOME": "/home/ann", "CLAUDE_CONFIG_DIR": "/srv/claude"}, "/srv/claude"),
        ({"HOME": "/home/ann", "CLAUDE_CONFIG_DIR": ""}, "/home/ann/.claude"),
    ],
)
def test_one_variable_moves_the_config_folder(environment: dict[str, str], folder: str) -> None:
    assert config_folder(environment) == Path(folder)


def test_without_a_home_the_accounts_own_is_used() -> None:
    assert home({}) == Path("~").expanduser()


@pytest.mark.parametrize("text", [None, ""])
def test_no_settings_given_are_empty_settings(text: str | None) -> None:
    assert given_settings(text) == {}


@pytest.mark.parametrize("text", ['{"model":"opus","env":{"A":"1"}}', ' \n{"model": "opus", "env": {"A": "1"}}\n'])
def test_settings_may_be_given_inline(text: str) -> None:
    assert given_settings(text) == {"model": "opus", "env": {"A": "1"}}


def test_settings_may_be_given_as_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text('{"model": "opus"}')

    assert given_settings(str(path)) == {"model": "opus"}


def test_a_given_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        given_settings(f"{tmp_path}/none.json")

    assert str(raised.value) == f"the settings file {tmp_path}/none.json cannot be read: No such file or directory"


def test_broken_inline_settings_are_refused() -> None:
    with pytest.raises(UsageError) as raised:
        given_settings('{"model":')

    assert str(raised.value) == "the settings in --settings are wrong: Input data was truncated"


@pytest.mark.parametrize(("content", "reason"), WRONG)
def test_a_broken_file_is_refused_with_its_name(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(content)

    with pytest.raises(UsageError) as given:
        given_settings(str(path))
    with pytest.raises(UsageError) as own:
        user_settings(tmp_path)

    assert str(given.value) == str(own.value) == f"the settings in {path} are wrong: {reason}"


@pytest.mark.parametrize(("content", "settings"), [("{}", {}), ('{"apiKeyHelper": "k"}', {"apiKeyHelper": "k"})])
def test_the_persons_own_settings_are_in_the_config_folder(tmp_path: Path, content: str, settings: Json) -> None:
    (tmp_path / "settings.json").write_text(content)

    assert user_settings(tmp_path) == settings


def test_without_a_settings_file_there_are_none(tmp_path: Path) -> None:
    assert user_settings(tmp_path / "nowhere") == {}
