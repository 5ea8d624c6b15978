"""Servers of different installations have different names."""

from __future__ import annotations

import pytest

from parley.resident.protocol import server_environment, server_name
from parley.version import __version__


def test_a_name_has_the_version_and_depends_on_what_is_read_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    name = server_name("/a/parley")
    assert name.startswith(f"{__version__}-")
    assert server_name("/b/parley") != name
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    assert server_name("/a/parley") == name
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    assert server_name("/a/parley") != name
    assert server_environment()["PYTHONHASHSEED"] == "7"
    assert "ANTHROPIC_API_KEY" not in server_environment()
