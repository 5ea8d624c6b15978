"""Each option of the sandbox has its effect, in a real session."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.policies import Json, Machine
from tests.process.sandbox.test_commands import ENABLED, need, run, script

UNIX = "python3 -c 'import socket; socket.socket(socket.AF_UNIX)' 2>&1 | tail -1; echo end"
ALL_PROXY = "printenv ALL_PROXY"
LISTEN = 'python3 -c \'import socket; s = socket.create_server(("127.0.0.1", 0)); print("listens")\''
CURL = 'curl -sS --noproxy "" -x "$HTTP_PROXY" http://localhost:{port}/'


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    need("bubblewrap")
    return Machine(tmp_path)


class Greeter(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"reached")

    def log_message(self, format: str, *values: Any) -> None:
        """Nothing on stderr."""


@pytest.fixture
def port() -> Iterator[int]:
    """The port of a server on the loopback interface."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Greeter) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def said(machine: Machine, command: str, **sandbox: Any) -> str:
    return run(machine, command, **sandbox).outputs[0][1]


RESTRICTING = {
    "credentials": {
        "envVars": [{"name": "TOKEN", "mode": "deny"}, {"name": "OTHER_TOKEN", "mode": "mask"}],
        "files": [{"path": "key.txt", "mode": "deny"}],
    },
    "network": {"allowLocalBinding": True, "allowedDomains": ["a.example"]},
}
LOOSENING = {
    "network": {"allowAllUnixSockets": True},
    "allowNestedUserNamespaces": True,
    "enableWeakerNestedSandbox": True,
}


@pytest.mark.parametrize(
    ("sandbox", "effects"),
    [
        (
            RESTRICTING,
            {
                'echo "[$TOKEN]"': "[]",
                'echo "[$OTHER_TOKEN]"': "[]",
                "cat key.txt": "reading it is not allowed",
                UNIX: "Operation not permitted",
                LISTEN: "listens",
                ALL_PROXY: "http://127.0.0.1:3128",  # some libraries do not start if it names a SOCKS proxy
                "unshare --user true 2>&1; echo end": "Operation not permitted",
            },
        ),
        (
            LOOSENING,
            {
                UNIX: "end",
                "unshare --user true 2>&1 && echo nested": "nested",
                "echo $PARLEY_SANDBOX": "bubblewrap",
            },
        ),
    ],
)
def test_an_option_has_its_effect(machine: Machine, sandbox: Json, effects: dict[str, str]) -> None:
    machine.write("key.txt", "secret\n")
    machine.environment |= {"TOKEN": "secret", "OTHER_TOKEN": "secret"}

    found = [text for _, text in run(machine, *effects, **sandbox).outputs]

    assert [expected for expected, text in zip(effects.values(), found, strict=True) if expected not in text] == []
    assert "secret" not in "".join(found)


def test_files_can_be_left_out_of_the_sandbox(machine: Machine) -> None:
    outside = machine.folder / "outside.txt"

    said(machine, f"echo hi > {outside}", filesystem={"disabled": True})

    assert outside.read_text() == "hi\n"


@pytest.mark.parametrize(
    ("network", "reached"),
    [
        ({"allowedDomains": ["localhost"]}, True),
        ({"allowedDomains": ["localhost"], "deniedDomains": ["localhost"]}, False),
        ({"allowedDomains": ["other.example"], "strictAllowlist": True}, False),
        ({}, False),
    ],
)
def test_only_allowed_hosts_are_reached(machine: Machine, port: int, network: Json, reached: bool) -> None:
    found = said(machine, CURL.format(port=port), network=network)

    assert (found == "reached") is reached


@pytest.mark.parametrize("kind", ["httpProxyPort", "socksProxyPort"])
def test_a_proxy_of_the_user_replaces_ours(machine: Machine, port: int, kind: str) -> None:
    request = (
        "curl -sS -m 5 http://any.example/"
        if kind == "httpProxyPort"
        else 'curl -sS -m 5 -x "$ALL_PROXY" http://a.example/'
    )

    found = said(machine, request, network={kind: port})

    # The server speaks HTTP only: as a SOCKS proxy it is reached, and its answer is not understood.
    assert ("reached" in found) is (kind == "httpProxyPort")
    assert "refused" not in found


def test_an_administrator_can_reserve_hosts_and_readable_paths(machine: Machine, port: int) -> None:
    machine.write("outside/key.txt", "secret\n")
    key = str(machine.folder / "outside/key.txt")
    managed = {
        "sandbox": {
            "network": {"allowManagedDomainsOnly": True, "allowedDomains": ["other.example"]},
            "filesystem": {"allowManagedReadPathsOnly": True, "denyRead": [key]},
        }
    }
    own = {"sandbox": {**ENABLED, "network": {"allowedDomains": ["localhost"]}, "filesystem": {"allowRead": [key]}}}

    done = machine.run(settings=own, managed=managed, script=script(CURL.format(port=port), f"cat {key}"))

    assert "reached" not in done.outputs[0][1]
    assert "reading it is not allowed" in done.outputs[1][1]


def test_a_project_cannot_loosen_a_sandbox_that_no_command_may_leave(machine: Machine) -> None:
    outside = machine.folder / "outside"
    outside.mkdir()
    loosened = {"filesystem": {"allowWrite": [str(outside)]}, "excludedCommands": ["touch"]}
    machine.write(".claude/settings.json", {"sandbox": loosened})
    machine.environment["PARLEY_TRUST"] = "1"

    done = run(machine, f"touch {outside}/file", allowUnsandboxedCommands=False, argv=("--setting-sources", "project"))

    assert done.outputs[0][0]
    assert list(outside.iterdir()) == []


CONFINED = {"sandbox": {**ENABLED, "allowUnsandboxedCommands": False}}


@pytest.mark.parametrize("layer", ["settings", "user"])
@pytest.mark.parametrize(
    "loosened",
    [
        {"filesystem": {"disabled": True}},
        {"excludedCommands": ["touch *"]},
        {"allowUnsandboxedCommands": False, "excludedCommands": ["touch *"]},
    ],
)
def test_the_sandbox_of_an_administrator_stays_whole(machine: Machine, layer: str, loosened: Json) -> None:
    outside = machine.folder / "outside"
    outside.mkdir()
    layers: Any = {layer: {"sandbox": loosened}}

    done = machine.run(
        "--permission-mode", "bypassPermissions", managed=CONFINED, script=script(f"touch {outside}/file"), **layers
    )

    assert done.outputs[0][0]
    assert list(outside.iterdir()) == []
    assert "managed settings leave this to no other layer" in done.stderr


def test_a_proxy_of_the_user_does_not_replace_that_of_an_administrator(machine: Machine, port: int) -> None:
    own = {"sandbox": {"network": {"httpProxyPort": port, "socksProxyPort": port}}}

    done = machine.run(managed=CONFINED, settings=own, script=script("curl -sS http://a.example/"))

    assert "reached" not in done.outputs[0][1]


@pytest.mark.parametrize("kind", ["allowWrite", "rule", "add-dir"])
@pytest.mark.parametrize("denial", ["denyWrite", "rule"])
@pytest.mark.parametrize("below", ["", "/sub"])
def test_a_denial_counts_more_than_any_permission_to_write(
    machine: Machine, kind: str, denial: str, below: str
) -> None:
    outside = machine.folder / "outside"
    (outside / "sub").mkdir(parents=True)
    opened = f"{outside}{below}"
    sandbox = {**ENABLED, **({"filesystem": {"denyWrite": [str(outside)]}} if denial == "denyWrite" else {})}
    managed = {"sandbox": sandbox, "permissions": {"deny": [f"Edit(/{outside}/**)"] if denial == "rule" else []}}
    layers: dict[str, Json] = {
        "allowWrite": {"sandbox": {"filesystem": {"allowWrite": [opened]}}},
        "rule": {"permissions": {"allow": [f"Edit(/{opened}/**)"]}},
        "add-dir": {},
    }
    machine.write("write.py", f"open({opened + '/file'!r}, 'w')")
    argv = ("--add-dir", opened) if kind == "add-dir" else ()

    done = machine.run(
        "--permission-mode",
        "bypassPermissions",
        *argv,
        managed=managed,
        settings=layers[kind],
        script=script("python3 write.py"),
    )

    assert done.outputs[0][0]
    assert not Path(opened, "file").exists()
