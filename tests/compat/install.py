"""Install the official clients into `.compat/`, from the registries that pip and npm are set up for.

    python -m tests.compat.install            # all of them; what is there already stays

The versions are pinned. With `PARLEY_NEWEST_CLIENTS=1` the current SDKs are installed at their newest versions instead.

The Python SDK is built from its source distribution and the TypeScript SDK is installed without its optional
packages: neither then carries an engine of its own, so that what answers can only be ours.

    .compat/python-0.2.184/     a virtual environment
    .compat/node-0.3.327/       package.json, node_modules
    .compat/libraries/          a virtual environment with the other clients in Python
    .compat/<name>/stamp.json   written last: without it, or with another one, the folder is made anew
    .compat/<name>.lock         held while a folder is made, so that test runs may start side by side
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.environment import make_install_environment

ROOT = Path(__file__).resolve().parents[2] / ".compat"
STEP_SECONDS = 480
OLDEST_NODE = 18


class Unavailable(Exception):
    """A client that cannot be had here, and why."""


Make = Callable[["Client"], None]


@dataclass(frozen=True)
class Client:
    """An official client at one version."""

    folder: str
    package: str
    version: str
    make: Make
    runs_with: str
    """The program that runs its drivers: a path in the folder, or a name on PATH."""

    @property
    def place(self) -> Path:
        return ROOT / self.folder

    @property
    def stamp(self) -> str:
        return json.dumps({"package": self.package, "version": self.version})

    def program(self) -> str | None:
        own = self.place / self.runs_with
        return str(own) if own.exists() else shutil.which(self.runs_with)

    def is_installed(self) -> bool:
        # A virtual environment whose Python was removed is a broken link.
        stamp = self.place / "stamp.json"
        return stamp.exists() and stamp.read_text() == self.stamp and self.program() is not None


def make_python(client: Client) -> None:
    install(client, "--no-binary", client.package, f"{client.package}=={client.version}")


def make_libraries(client: Client) -> None:
    """They have no engine to leave out. In one environment, pip reads about the packages that they share once."""
    install(client, *client.version.split())


def install(client: Client, *words: str, python: str = sys.executable) -> None:
    # Our own pip installs: a pip in every environment would take longer than most of the clients.
    run([python, "-m", "venv", "--without-pip", str(client.place)])
    pip = [sys.executable, "-m", "pip", "--python", str(client.place / client.runs_with)]
    quiet = ["--disable-pip-version-check", "--no-input", "--quiet"]
    patience = ["--retries", "1", "--timeout", "20"]
    # The drivers import a part of what is installed, and leave the bytecode of that for the next one.
    run([*pip, *quiet, "install", "--no-compile", *patience, *words])


def make_node(client: Client) -> None:
    check_node()
    client.place.mkdir()
    package = {"private": True, "type": "module", "dependencies": {client.package: client.version}}
    (client.place / "package.json").write_text(json.dumps(package, indent=2) + "\n")
    quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    patience = ["--fetch-retries=1", "--fetch-timeout=20000"]
    run(["npm", "install", "--omit=optional", "--ignore-scripts", *quiet, *patience], cwd=client.place)


def make_mcp_suite(client: Client) -> None:
    """The suite imports `globSync` of node 22 for a command that the tests do not use."""
    make_node(client)
    program = client.place / "node_modules" / client.package / "dist" / "index.js"
    program.write_text(program.read_text().replace("globSync as a,", "", 1))


def check_node() -> None:
    """Raises Unavailable."""
    version = run(["node", "--version"]).strip()
    if int(version.removeprefix("v").partition(".")[0]) < OLDEST_NODE:
        raise Unavailable(f"node is {version}, and must be at least {OLDEST_NODE}")


def run(command: Sequence[str], cwd: Path | None = None) -> str:
    """What a step of the installation prints. Raises Unavailable if it fails."""
    shown = " ".join(command[:6])
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=make_install_environment(os.environ),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=STEP_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise Unavailable(f"there is no {command[0]} on this machine") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"`{shown} ...` took longer than {STEP_SECONDS} s") from None
    if done.returncode != 0:
        raise Unavailable(f"`{shown} ...` failed:\n{gist(done.stderr or done.stdout)}")
    return done.stdout


def gist(text: str) -> str:
    """The lines that tell what went wrong; pip and npm say much else."""
    lines = text.strip().splitlines()
    return "\n".join([line for line in lines if line.startswith(("ERROR", "npm error"))][:4] or lines[-4:])


def newest_python(package: str) -> str:
    lines = run([sys.executable, "-m", "pip", "--disable-pip-version-check", "index", "versions", package]).splitlines()
    return lines[0].rpartition("(")[2].rstrip(")")


def newest_node(package: str) -> str:
    return run(["npm", "view", package, "version"]).strip()


def version(pinned: str, newest: Callable[[str], str], package: str) -> str:
    return newest(package) if os.environ.get("PARLEY_NEWEST_CLIENTS") else pinned


PYTHON, NODE = "claude-agent-sdk", "@anthropic-ai/claude-agent-sdk"
CURRENT = version("0.2.184", newest_python, PYTHON)
CURRENT_PYTHON = Client(f"python-{CURRENT}", PYTHON, CURRENT, make_python, "bin/python")
OLD_PYTHON = Client("python-0.1.50", PYTHON, "0.1.50", make_python, "bin/python")
CURRENT_NODE = version("0.3.327", newest_node, NODE)
TYPESCRIPT = Client(f"node-{CURRENT_NODE}", NODE, CURRENT_NODE, make_node, "node")
LIBRARIES = Client(
    "libraries",
    "the other clients in Python:",
    "anthropic[bedrock,vertex]==2.8.0 openai==3.49.0 claude-code-log==1.7.0 agent-client-protocol[http]==0.12.1",
    make_libraries,
    "bin/python",
)
CCUSAGE = Client("ccusage-17.2.1", "ccusage", "17.2.1", make_node, "node")
"""The last version without a native part, which no registry needs to have."""
ACP_TYPESCRIPT = Client("acp-node-2.4.0", "@agentclientprotocol/sdk", "2.4.0", make_node, "node")
DOCUMENT_TOOLS = Client(
    "document-tools",
    "what checks documents:",
    "schemathesis==4.32.5 openapi-spec-validator==0.9.0 check-jsonschema==0.39.0",
    make_libraries,
    "bin/python",
)
ASYNCAPI = Client("asyncapi-parser-3.6.3", "@asyncapi/parser", "3.6.3", make_node, "node")
COMPILER = Client("typescript-5.9.3", "typescript", "5.9.3", make_node, "node")
"""Checks the generated types. Later versions are native programs."""
AXE = Client("axe-core-4.14.0", "axe-core", "4.14.0", make_node, "node")
"""Not a client, but what checks the console for people who use a screen reader."""
MCP_SUITE = Client(
    "mcp-conformance-0.2.0-alpha.12", "@modelcontextprotocol/conformance", "0.2.0-alpha.12", make_mcp_suite, "node"
)
"""The official suite for MCP clients and servers. Earlier releases do not know MCP 2026-07-28 as it was released."""
CLIENTS = (
    CURRENT_PYTHON,
    OLD_PYTHON,
    LIBRARIES,
    TYPESCRIPT,
    CCUSAGE,
    ACP_TYPESCRIPT,
    DOCUMENT_TOOLS,
    ASYNCAPI,
    COMPILER,
    AXE,
    MCP_SUITE,
)


def ensure(client: Client, tell: Callable[[str], None]) -> None:
    """Install a client unless it is there already. Raises Unavailable."""
    ROOT.mkdir(exist_ok=True)
    with locked(ROOT / f"{client.folder}.lock"):
        if client.is_installed():
            tell(f"{client.package} {client.version} is there: {client.place}")
            return
        tell(f"installing {client.package} {client.version} into {client.place}")
        shutil.rmtree(client.place, ignore_errors=True)
        client.make(client)
        (client.place / "stamp.json").write_text(client.stamp)


def locked(path: Path) -> AbstractContextManager[object]:
    """The lock is the kernel's: it goes when the block is left, and also when its holder dies."""
    file = path.open("w")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    failed = 0
    for client in CLIENTS:
        try:
            ensure(client, say)
        except Unavailable as exc:
            sys.stderr.write(f"{client.package} {client.version} cannot be installed: {exc}\n")
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
