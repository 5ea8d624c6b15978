"""Who may do what: every scope at every endpoint, for sessions of its own tenant and of another."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from tests.helpers.gateway import Server
from tests.helpers.patience import PATIENCE_SECONDS

SCOPES = ("none", "expired", "view", "prompt", "approve", "create", "admin")
QUESTION = "no-such-question"
VIEWERS = {"view", "prompt", "approve", "create", "admin"}
# Method, path, body, the scopes that may, and what happens then. SESSION is a session of the own or the other tenant.
ENDPOINTS: dict[str, tuple[str, str, Any, set[str], int]] = {
    "list sessions": ("GET", "/sessions", None, VIEWERS, 200),
    "create a session": ("POST", "/sessions", {}, {"create", "admin"}, 201),
    "get a session": ("GET", "/sessions/SESSION", None, VIEWERS, 200),
    "fork a session": ("POST", "/sessions/SESSION/fork", {}, {"create", "admin"}, 201),
    "prompt": ("POST", "/sessions/SESSION/prompts", {"content": "say Hi."}, {"prompt", "admin"}, 202),
    "read the cost": (
        *("POST", "/sessions/SESSION/control", {"subtype": "get_session_cost"}),
        *(VIEWERS, 200),
    ),
    "interrupt": ("POST", "/sessions/SESSION/control", {"subtype": "interrupt"}, {"prompt", "admin"}, 200),
    "plan mode": (
        *("POST", "/sessions/SESSION/control", {"subtype": "set_permission_mode", "mode": "plan"}),
        *({"prompt", "admin"}, 200),
    ),
    "accept edits": (
        *("POST", "/sessions/SESSION/control", {"subtype": "set_permission_mode", "mode": "acceptEdits"}),
        *({"approve", "admin"}, 200),
    ),
    "change settings": (
        *("POST", "/sessions/SESSION/control", {"subtype": "apply_flag_settings", "settings": {}}),
        *({"approve", "admin"}, 200),
    ),
    "who am I": ("GET", "/me", None, VIEWERS, 200),
    "costs": ("GET", "/costs", None, VIEWERS, 200),
    "search": ("GET", "/sessions?search=hello", None, VIEWERS, 200),
    "the schema": ("GET", "/schema.json", None, VIEWERS, 200),
    "lines": ("GET", "/sessions/SESSION/lines", None, VIEWERS, 200),
    "prompts": ("GET", "/sessions/SESSION/index", None, VIEWERS, 200),
    "turns": ("GET", "/sessions/SESSION/turns", None, VIEWERS, 200),
    "requests": ("GET", "/sessions/SESSION/requests", None, VIEWERS, 200),
    "complete a path": ("GET", "/sessions/SESSION/files?query=x", None, {"prompt", "admin"}, 200),
    "show a rewind": ("GET", "/sessions/SESSION/rewind?uuid=x", None, {"prompt", "admin"}, 400),
    "wire": ("GET", "/sessions/SESSION/wire", None, {"approve", "admin"}, 200),
    "recording": ("GET", "/sessions/SESSION/wire/recording", None, {"approve", "admin"}, 200),
    "simulate a rule": (
        *("POST", f"/questions/SESSION/{QUESTION}/simulate", {"rule": "Bash"}),
        *({"approve", "admin"}, 404),
    ),
    "list questions": ("GET", "/questions", None, VIEWERS, 200),
    "get a question": (
        *("GET", f"/questions/SESSION/{QUESTION}", None),
        *(VIEWERS, 404),
    ),
    "answer a question": (
        *("POST", f"/questions/SESSION/{QUESTION}/answer", {"behavior": "allow"}),
        *({"approve", "admin"}, 404),
    ),
    "delegate a question": (
        *("POST", f"/questions/SESSION/{QUESTION}/delegate", {"to": "somebody"}),
        *({"approve", "admin"}, 404),
    ),
    "list tokens": ("GET", "/tokens", None, {"admin"}, 200),
    "create a token": ("POST", "/tokens", {"name": "", "scopes": []}, {"admin"}, 400),
    "revoke a token": ("DELETE", "/tokens/no-such-token", None, {"admin"}, 404),
    "metrics": ("GET", "/metrics", None, {"admin"}, 200),
    "delete a session": ("DELETE", "/sessions/SESSION", None, {"create", "admin"}, 204),
}


class Gateway:
    """A running server with one token per scope, and sessions of two tenants."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.tokens = {"none": "", "admin": server.token}
        for scope in ("view", "prompt", "approve", "create"):
            self.tokens[scope] = self._create_token(scope, "acme")
        self.tokens["expired"] = self._create_token("admin", "acme", name="expired", expires_in=-1)
        self.creators = {
            tenant: self._create_token("create", tenant, name=f"creator {tenant}") for tenant in ("acme", "other")
        }

    def _create_token(self, scope: str, tenant: str, **more: Any) -> str:
        body = {"name": scope, "scopes": [scope], "tenant": tenant, **more}
        status, made = self.request("POST", "/tokens", body, self.server.token)
        assert status == 201, made
        return str(made["token"])

    def new_session(self, tenant: str) -> str:
        status, made = self.request("POST", "/sessions", {}, self.creators[tenant])
        assert status == 201, made
        return str(made["session_id"])

    def request(self, method: str, path: str, body: Any, token: str) -> tuple[int, Any]:
        connection = HTTPConnection("127.0.0.1", self.server.port, timeout=PATIENCE_SECONDS)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        data = response.read()
        connection.close()
        is_json = response.headers.get_content_type() == "application/json"
        return response.status, json.loads(data) if is_json else data


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    loop = asyncio.new_event_loop()
    server = Server(tmp_path_factory.mktemp("gateway"))
    loop.run_until_complete(server.start())
    try:
        yield Gateway(server)
    finally:
        loop.run_until_complete(server.kill())
        loop.close()


@pytest.mark.parametrize("tenant", ["acme", "other"])
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_every_scope_at_every_endpoint(gateway: Gateway, endpoint: str, scope: str, tenant: str) -> None:
    method, path, body, allowed, status = ENDPOINTS[endpoint]
    session = gateway.new_session(tenant) if "SESSION" in path else ""
    found, answer = gateway.request(method, path.replace("SESSION", session), body, gateway.tokens[scope])
    if scope in ("none", "expired"):
        assert (found, answer["error"]["code"]) == (401, "unauthorized")
    elif scope not in allowed:
        assert found in ((403, 404) if session and tenant == "other" else (403,)), answer
    elif session and tenant == "other" and scope != "admin":
        assert (found, answer["error"]["code"]) == (404, "unknown_session")
    else:
        assert found == status, answer
    exists = gateway.request("GET", f"/sessions/{session}", None, gateway.server.token)[0] == 200 if session else False
    assert exists == (bool(session) and not (endpoint == "delete a session" and found == 204))


@pytest.mark.parametrize("tenant", ["acme", "other"])
@pytest.mark.parametrize("scope", SCOPES)
def test_every_scope_on_a_socket(gateway: Gateway, scope: str, tenant: str) -> None:
    session, token = gateway.new_session(tenant), gateway.tokens[scope]
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url = f"ws://127.0.0.1:{gateway.server.port}/sessions/{session}/ws"
    if scope == "expired":
        with pytest.raises(InvalidStatus):
            connect(url, additional_headers=headers)
        return
    prompt = {"type": "user", "message": {"role": "user", "content": "say Hi."}}
    lines: list[Any] = [{"type": "none yet"}]
    code = None
    with connect(url, additional_headers=headers) as socket:
        try:
            socket.send(json.dumps(prompt) + "\n")
            while lines[-1]["type"] != "result":
                lines.append(json.loads(socket.recv(timeout=PATIENCE_SECONDS)))
        except ConnectionClosed as closed:
            code = closed.rcvd and closed.rcvd.code
    if scope == "none":
        assert code == 4401
    elif tenant == "other" and scope != "admin":
        assert code == 4404
    elif scope in ("prompt", "admin"):
        assert lines[-1]["result"] == "Hi."
    else:
        assert lines[-1]["errors"] == [f"the token {scope!r} does not have the scope 'prompt'"]


def test_a_tenant_sees_only_its_own_sessions_and_questions(gateway: Gateway) -> None:
    own, foreign = gateway.new_session("acme"), gateway.new_session("other")
    _, listed = gateway.request("GET", "/sessions", None, gateway.tokens["view"])
    ids = [session["id"] for session in listed["sessions"]]
    assert own in ids
    assert foreign not in ids


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("path", ["/sessions/events", "/questions/events"])
def test_every_scope_at_every_event_stream(gateway: Gateway, path: str, scope: str) -> None:
    connection = HTTPConnection("127.0.0.1", gateway.server.port, timeout=PATIENCE_SECONDS)
    token = gateway.tokens[scope]
    connection.request("GET", path, None, {"Authorization": f"Bearer {token}"} if token else {})
    response = connection.getresponse()
    assert response.status == (401 if scope in ("none", "expired") else 200)
    response.close()
    connection.close()


def test_no_token_is_stored_or_logged(gateway: Gateway) -> None:
    folder: Path = gateway.server.folder
    for name, token in {**gateway.tokens, **gateway.creators}.items():
        if not token:
            continue
        gateway.request("GET", "/sessions", None, token)
        gateway.request("GET", f"/sessions?token={token}x", None, token + "x")
        stored = [path for path in folder.rglob("*") if path.is_file() and token.encode() in path.read_bytes()]
        assert stored == ([gateway.server.token_file] if name == "admin" else [])
        if name != "admin":
            assert token not in "".join(gateway.server.stderr)
