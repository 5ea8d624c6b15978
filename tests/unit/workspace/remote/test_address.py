"""How the owner of a session reaches its files."""

from __future__ import annotations

import pytest

from parley.workspace.remote.address import SessionWorkspace, WorkspaceAddress, WorkspaceAway, find_options

LOCAL = SessionWorkspace(kind="local", host="one")
ADDRESSES = {"one": "tls://10.0.0.1:7300", "two": "unix:/run/two"}


def test_the_host_that_has_the_files_and_every_host_of_a_shared_volume_use_their_own() -> None:
    assert find_options(LOCAL, "/w", "one", {}) == []
    assert find_options(SessionWorkspace(kind="shared"), "/w", "two", {}) == []


def test_another_host_uses_the_server_of_the_one_that_has_the_files() -> None:
    [_, address] = find_options(LOCAL, "/w/x", "two", ADDRESSES)
    parsed = WorkspaceAddress.parse(address)
    assert (str(parsed), parsed.folder, parsed.is_encrypted) == ("10.0.0.1:7300", "/w/x", True)
    [_, address] = find_options(SessionWorkspace(kind="local", host="two"), "/w", "one", ADDRESSES)
    assert WorkspaceAddress.parse(address) == WorkspaceAddress(path="/run/two", folder="/w")


def test_a_host_that_is_gone_is_named() -> None:
    with pytest.raises(WorkspaceAway, match=r"the files of this session \(/w\) are on the host one, which is not"):
        find_options(LOCAL, "/w", "two", {"two": "tcp://10.0.0.2:7300"})


def test_a_remote_workspace_has_an_address_of_its_own() -> None:
    chosen = SessionWorkspace(kind="remote", address="tcp://h:1/w")
    assert find_options(chosen, "/w", "two", {}) == ["--workspace", "tcp://h:1/w"]
