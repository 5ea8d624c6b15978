"""The keys of a tenant on a real host: not in the log, the registry, the options or the process list."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from parley.models.script import Script, ScriptedTurn
from parley.testing.model_server import running
from tests.helpers.host_process import cluster_rig

SECRET = "sk-the-key-of-acme-1234567890"


async def test_the_keys_of_a_tenant_cannot_be_found_outside_of_its_engine(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir(mode=0o700)
    with running(Script(turn=[ScriptedTurn(text="Hi.")], at_end="repeat")) as model:
        file = secrets / "acme.env"
        file.write_text(f"ANTHROPIC_API_KEY={SECRET}\nANTHROPIC_BASE_URL={model.url}\n")
        file.chmod(0o600)
        async with cluster_rig(tmp_path) as rig:
            options = ("--model", "claude-x", "--tenant-secrets", str(secrets))
            async with rig.host("one", *options) as host:
                token = await rig.gateway.make_token("ann", "create", "prompt", tenant="acme")
                _, made = await rig.gateway.request("POST", "/sessions", {}, token)
                assert (await rig.gateway.ask(made["session_id"], "Hi"))["result"] == "Hi."
                assert host.process is not None
                process = Path("/proc") / str(host.process.pid)
                seen = [(process / "cmdline").read_bytes()]
                with suppress(PermissionError):  # it hides its environment from other processes of an ordinary user
                    seen.append((process / "environ").read_bytes())
                seen += [row.value for row in await rig.cluster.registry.rows(">")]
                assert not [each for each in seen if SECRET.encode() in each]
            stored = [path for path in tmp_path.rglob("*") if path.is_file() and path != file]
            assert stored
            assert [path for path in stored if SECRET.encode() in path.read_bytes()] == []
            assert not [line for line in host.stderr if SECRET in line]
