"""Servers of `.mcp.json` that wait for the user's trust."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parley.settings.base import ProjectTrust
from parley.settings.mcp_files import list_pending

SERVERS = {"one": {"command": "x"}, "two": {"command": "y"}}


class Removal(ProjectTrust, frozen=True):
    """No trust; the file is gone as soon as it was read."""

    file: Path

    def find_obstacle(self, source: str, entry: str | bytes) -> str | None:
        self.file.unlink(missing_ok=True)
        return super().find_obstacle(source, entry)


def test_a_file_that_is_removed_meanwhile_was_read(tmp_path: Path) -> None:
    file = tmp_path / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": SERVERS}))

    assert list_pending(str(file), Removal(file=file)) == SERVERS


@pytest.mark.parametrize("text", [None, "{", "[]", '{"mcpServers": []}'])
def test_a_file_without_servers_has_none_that_wait(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / ".mcp.json"
    if text is not None:
        file.write_text(text)

    assert list_pending(str(file), ProjectTrust()) == {}
