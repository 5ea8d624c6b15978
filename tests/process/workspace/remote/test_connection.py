"""Who gets in, and what a server does with bytes that no engine sends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from parley.compose.remote import serve_workspace
from parley.errors import ToolError, UsageError
from parley.workspace.base import Scope
from parley.workspace.process.processes import PreparedCommand
from parley.workspace.remote import wire
from parley.workspace.remote.address import WorkspaceAddress
from parley.workspace.remote.calls import Call, RequestBody, find_facts, read_file, start_command
from parley.workspace.remote.client import connect_workspace
from parley.workspace.remote.link import LinkSettings, WorkspaceUnavailable
from parley.workspace.remote.wire import Greeting
from tests.helpers.remote_workspace import TOKEN, ServerThread

ANYWHERE = Scope(anywhere=True)


def greeting(**fields: object) -> Greeting:
    usual = {"version": wire.WIRE_VERSION, "build": "x", "nonce": b"n" * 32, "session": "s", "engine": "e"}
    return Greeting(**{**usual, **fields})  # type: ignore[arg-type]


async def open_channel(server: ServerThread) -> wire.WorkspaceChannel:
    return wire.WorkspaceChannel(*await asyncio.open_unix_connection(str(server.socket)))


def test_a_wrong_token_is_refused_and_the_token_is_never_sent(server: ServerThread) -> None:
    with pytest.raises(WorkspaceUnavailable, match="the token is wrong"):
        server.connect(token="not the token at all")


async def test_a_proof_for_another_session_is_no_proof(server: ServerThread) -> None:
    channel = await open_channel(server)
    asked = greeting(session="mine")
    await wire.send_hello(channel, asked)
    challenge = await wire.receive_hello(channel)
    assert isinstance(challenge, wire.ServerChallenge)
    stolen = wire.prove(TOKEN, "client", greeting(session="yours"), challenge.nonce)
    await wire.send_hello(channel, wire.Proof(proof=stolen))
    answer = await wire.receive_hello(channel)
    channel.close()
    assert isinstance(answer, wire.Rejected)


def test_a_server_without_the_token_is_not_trusted(tmp_path: Path, root: Path) -> None:
    async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        channel = wire.WorkspaceChannel(reader, writer)
        await wire.receive_hello(channel)
        await wire.send_hello(channel, wire.ServerChallenge(version=1, nonce=b"x"))
        await wire.receive_hello(channel)
        welcome = wire.Welcome(
            proof=b"guess",
            root="/",
            cwd="/",
            home="/",
            platform="linux",
            uid=0,
            environment={},
            own_folder="/",
            is_known=False,
            grace_seconds=1,
            build="x",
        )
        await wire.send_hello(channel, welcome)
        channel.close()

    server = ServerThread(root, tmp_path / "state")
    server.stop()
    listening = server.run(asyncio.start_unix_server(impostor, server.socket))
    with pytest.raises(WorkspaceUnavailable, match="the server does not have the token"):
        server.connect()
    server.loop.call_soon_threadsafe(listening.close)


async def test_another_version_of_the_protocol_is_refused_with_both_versions(server: ServerThread) -> None:
    channel = await open_channel(server)
    await wire.send_hello(channel, greeting(version=99, build="9.9"))
    answer = await wire.receive_hello(channel)
    channel.close()
    assert isinstance(answer, wire.Rejected)
    assert "version 99" in answer.reason
    assert "Parley 9.9" in answer.reason


def test_a_folder_outside_the_root_is_refused(server: ServerThread, root: Path, tmp_path: Path) -> None:
    (root / "out").symlink_to(tmp_path)
    for folder in ("/etc", str(root / "out"), str(root / ".." / "elsewhere")):
        with pytest.raises(WorkspaceUnavailable, match="outside the workspace"):
            server.connect(folder)


def test_no_scope_reaches_outside_the_root(server: ServerThread, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "secret"
    outside.write_text("secret")
    (root / "link").symlink_to(outside)
    remote = server.connect()
    scopes = (ANYWHERE, Scope(folders=("/",)), Scope(files=(str(outside),)), Scope(folders=(str(tmp_path),)))
    for scope in scopes:
        for path in (outside, root / "link"):
            with pytest.raises(ToolError, match="outside the paths"):
                remote.files.read(str(path), scope)
            with pytest.raises(ToolError, match="outside the paths"):
                remote.files.write(str(path), b"x", scope, replacing=None)
    assert outside.read_text() == "secret"


async def test_a_command_outside_the_root_is_refused(server: ServerThread) -> None:
    remote = server.connect()
    true = PreparedCommand(argv=["/bin/true"], cwd="/", environment={})
    with pytest.raises(ToolError, match="outside the workspace"):
        await remote.processes.start(true, lambda data: None)


def test_a_server_that_is_not_there_is_named(tmp_path: Path, server: ServerThread) -> None:
    server.stop()
    with pytest.raises(WorkspaceUnavailable, match=rf"the workspace at unix:{server.socket} does not answer"):
        server.connect(settings={"wait_seconds": 0.2})


def test_a_token_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("long enough for a token")
    path.chmod(0o644)
    with pytest.raises(UsageError, match="can be read by others"):
        wire.read_token_file(str(path))
    path.chmod(0o600)
    assert wire.read_token_file(str(path)) == "long enough for a token"


@pytest.mark.parametrize("text", ["host", "host:x", "http://h:1", "unix:relative", ":1", "h:70000"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="workspace address"):
        WorkspaceAddress.parse(text)


# Bytes that no engine sends.


def hostile_bytes(seed: int) -> bytes:
    """Frames that are cut, too long, of wrong types, or noise."""
    rng = random.Random(seed)
    kind = rng.randrange(6)
    if kind == 0:
        return rng.randbytes(rng.randrange(1, 200))
    if kind == 1:
        return wire.LENGTH.pack(rng.randrange(1 << 20, 1 << 32)) + b"x"
    odd = [rng.randrange(-5, 20), rng.randrange(1 << 40), bool(rng.randrange(2)), rng.randbytes(rng.randrange(50))]
    if kind == 2:
        odd = odd[: rng.randrange(4)]
    elif kind == 3:
        odd[rng.randrange(4)] = rng.choice([None, "text", -1, [], {}, 1.5])
    elif kind == 4:
        body = msgspec.msgpack.encode({"type": rng.choice(["greeting", "proof", "welcome", "x"]), "version": 1})
        odd = [wire.HELLO, 0, False, body]
    data = msgspec.msgpack.encode(odd)
    framed = wire.LENGTH.pack(len(data)) + data
    return framed[: rng.randrange(1, len(framed) + 1)] if kind == 5 else framed


def test_strangers_who_send_nonsense_do_not_disturb_a_session(server: ServerThread, root: Path) -> None:
    (root / "a").write_text("a")
    remote = server.connect()
    for seed in range(1500):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(str(server.socket))
            with contextlib.suppress(ConnectionError):  # the server may hang up on a stranger before it reads
                stranger.sendall(hostile_bytes(seed))
    assert remote.files.read(str(root / "a"), ANYWHERE).data == b"a"


async def greet_as(server: ServerThread, session: str) -> wire.WorkspaceChannel:
    channel = await open_channel(server)
    await wire.greet(channel, greeting(session=session, engine=session), TOKEN)
    return channel


async def test_an_engine_that_sends_nonsense_loses_only_its_own_connection(server: ServerThread, root: Path) -> None:
    (root / "a").write_text("a")
    remote = server.connect()
    good = wire.encode_body(RequestBody([], find_facts([("readlink", "/a", 0)]).message))
    for seed in range(300):
        rng = random.Random(seed)
        channel = await greet_as(server, f"bad-{seed % 7}")
        body = bytearray(good)
        for _ in range(rng.randrange(1, 6)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        try:
            await channel.send(rng.choice([wire.REQUEST, wire.TAKEN, wire.CANCEL, wire.WAITING, 77]), seed, bytes(body))
            await channel.send(wire.REQUEST, 1, hostile_bytes(seed))
        except ConnectionError:
            pass
        channel.close()
    assert await asyncio.to_thread(lambda: remote.files.read(str(root / "a"), ANYWHERE).data) == b"a"


@pytest.mark.parametrize(
    "call",
    [
        find_facts([("no such fact", "/", 0)]),
        read_file("relative", ANYWHERE),
        read_file("/a\0b", ANYWHERE),
        start_command(1, [], b"/", {}),
        start_command(1, [b"a\0b"], b"", {"a=b": b"\0"}),
    ],
)
def test_a_call_that_no_engine_makes_gets_an_error_as_its_answer(server: ServerThread, call: Call[Any]) -> None:
    remote = server.connect()
    with pytest.raises((ToolError, OSError)):
        remote.link.call(call)
    assert remote.link.call(find_facts([("exists", "/", 0)])) == [True]


def test_own_files_are_only_in_the_folder_of_the_session(server: ServerThread, root: Path) -> None:
    remote, other = server.connect(), server.connect()
    for path in (root / "x", Path(other.welcome.own_folder, "x"), Path(remote.welcome.own_folder, "..", "x")):
        with pytest.raises(OSError, match="not in the folder of the session"):
            remote.processes.outputs.save(path, b"x")
    remote.processes.outputs.save(Path(remote.welcome.own_folder, "tool-results", "x"), b"x")
    assert os.listdir(root) == []


def test_with_tls_the_certificate_is_checked(tmp_path: Path, root: Path) -> None:
    (root / "a").write_text("a")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    make += ["-subj", "/CN=ws", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    subprocess.run([*make, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    server = ServerThread(root, tmp_path / "state")
    encrypted = server.run(
        serve_workspace(
            WorkspaceAddress(host="127.0.0.1"),
            str(root),
            TOKEN,
            {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
            state=tmp_path / "tls-state",
            certificate=(str(certificate), str(key)),
        )
    )
    assert encrypted.address.is_encrypted
    trusting = LinkSettings(address=encrypted.address, token=TOKEN, ca_file=str(certificate), wait_seconds=5)
    remote = connect_workspace(trusting, "s")
    assert remote.files.read(str(root / "a"), ANYWHERE).data == b"a"
    remote.close()
    with pytest.raises(WorkspaceUnavailable, match="certificate"):
        connect_workspace(LinkSettings(address=encrypted.address, token=TOKEN, wait_seconds=1), "s")
    plain = WorkspaceAddress(host="127.0.0.1", port=encrypted.address.port)
    with pytest.raises(WorkspaceUnavailable, match="does not answer"):
        connect_workspace(LinkSettings(address=plain, token=TOKEN, wait_seconds=1), "s")
    server.run(encrypted.close())
    server.close()
