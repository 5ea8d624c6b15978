"""Which workspace a new session gets."""

from __future__ import annotations

import pytest

from parley.gateway.refusal import Refusal
from parley.gateway.security.access import Principal, Scope
from parley.gateway.session_options import WorkspaceRequest, choose_workspace
from parley.workspace.remote.address import SessionWorkspace

ADMIN = Principal.administrator("admin")
CREATOR = Principal(name="creator", tenant="t", scopes=frozenset({Scope.CREATE}))
LIMITED = Principal(name="limited", tenant="t", scopes=frozenset({Scope.CREATE}), roots=("a",))
LOCAL = SessionWorkspace(kind="local", host="one", wait=True)
REMOTE = SessionWorkspace(kind="remote", host="one", address="tcp://files:7300/work")


def test_the_host_decides_if_nothing_is_wanted() -> None:
    assert choose_workspace(None, None, CREATOR) is None
    assert choose_workspace(None, LOCAL, CREATOR) == LOCAL
    assert choose_workspace(None, REMOTE, CREATOR) == SessionWorkspace(kind="remote", address="tcp://files:7300/work")
    assert choose_workspace(WorkspaceRequest(kind="remote"), REMOTE, CREATOR) == choose_workspace(None, REMOTE, CREATOR)


def test_a_client_chooses_the_kind_and_whether_to_wait() -> None:
    assert choose_workspace(WorkspaceRequest(kind="local", wait=False), LOCAL, CREATOR) == SessionWorkspace(
        kind="local", host="one"
    )
    assert choose_workspace(WorkspaceRequest(kind="shared"), LOCAL, CREATOR) == SessionWorkspace(kind="shared")


@pytest.mark.parametrize(
    ("wanted", "default", "principal", "reason"),
    [
        (WorkspaceRequest(kind="local"), None, ADMIN, "'local' is for clusters"),
        (WorkspaceRequest(kind="shared"), None, ADMIN, "'remote' is possible"),
        (WorkspaceRequest(kind="remote"), LOCAL, ADMIN, "address is missing"),
        (WorkspaceRequest(kind="remote", address="http://h:1"), None, ADMIN, "use tcp://, tls:// or unix:"),
        (WorkspaceRequest(kind="remote", address="tcp://h:1"), REMOTE, CREATOR, "needs the scope 'admin'"),
        (WorkspaceRequest(kind="shared", address="tcp://h:1"), LOCAL, ADMIN, "is for the kind 'remote'"),
        (None, REMOTE, LIMITED, "is limited to directories"),
    ],
)
def test_what_cannot_be_is_refused(
    wanted: WorkspaceRequest | None, default: SessionWorkspace | None, principal: Principal, reason: str
) -> None:
    with pytest.raises(Refusal, match=reason):
        choose_workspace(wanted, default, principal)
