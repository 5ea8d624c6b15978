"""What tenants may use in a cluster, whichever hosts run their sessions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from parley.cluster.tenants import TenantSecrets
from parley.errors import UsageError
from parley.models.script import Script, ScriptedTurn
from parley.testing.model_server import running
from tests.helpers.cluster import ClusterServer, LocalCluster, local_cluster
from tests.helpers.gateway import following, open_question
from tests.helpers.patience import PATIENCE_SECONDS

SECRET = "sk-the-key-of-acme-1234567890"


async def create_on_both_hosts(cluster: LocalCluster, server: ClusterServer, token: str) -> list[str]:
    """Sessions until each host has one."""
    await cluster.wait_balanced()
    made: list[str] = []
    while len({(await cluster.find_owner(session)).name for session in made}) < 2:
        status, created = await server.request("POST", "/sessions", {}, token)
        assert status == 201, created
        made.append(created["session_id"])
    return made


async def wait_listed(cluster: LocalCluster, count: int) -> None:
    """Wait until the registry knows so many sessions."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for _ in cluster.cluster.registry.watch("sessions.>"):
            if len(await cluster.cluster.registry.rows("sessions.>")) >= count:
                return


async def test_the_sessions_of_a_tenant_are_counted_on_all_hosts(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as (cluster, server):
        token = await server.make_token("ann", "create", tenant="acme", quotas={"sessions": 20})
        made = await create_on_both_hosts(cluster, server, token)
        await wait_listed(cluster, len(made))
        for _ in range(20 - len(made)):
            status, _ = await server.request("POST", "/sessions", {}, token)
            assert status == 201
        await wait_listed(cluster, 20)
        status, refused = await server.request("POST", "/sessions", {}, token)
        assert (status, refused["error"]["code"]) == (429, "quota_exceeded")


async def test_the_quotas_of_tenants_come_from_a_file(tmp_path: Path) -> None:
    quotas = tmp_path / "quotas.toml"
    quotas.write_text("[acme]\nsessions = 1\nusd = 0.001\n[small]\nstorage_bytes = 10\n")
    options = ("--model", "offline")
    async with local_cluster(tmp_path, *options, tenant_quotas=str(quotas)) as (cluster, server):
        ann = await server.make_token("ann", "create", "prompt", tenant="acme")
        status, _ = await server.request("POST", "/sessions", {}, ann)
        assert status == 201
        await wait_listed(cluster, 1)
        bob = await server.make_token("bob", "create", tenant="acme")
        status, refused = await server.request("POST", "/sessions", {}, bob)
        assert (status, "the tenant 'acme'" in refused["error"]["message"]) == (429, True)

        carl = await server.make_token("carl", "create", "prompt", tenant="small")
        _, small = await server.request("POST", "/sessions", {}, carl)
        session = small["session_id"]
        async with following(server, session) as viewer:
            await server.request("POST", f"/sessions/{session}/prompts", {"content": "say Hello."}, carl)
            await viewer.wait_for(lambda: len(viewer.results()) == 1)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                status, refused = await server.request("POST", f"/sessions/{session}/prompts", {"content": "say"}, carl)
                if status == 429:
                    break
        assert "10 stored bytes" in refused["error"]["message"]


@asynccontextmanager
async def paid_cluster(folder: Path, quotas: str = "") -> AsyncIterator[tuple[LocalCluster, ClusterServer]]:
    """Two hosts and a gateway. Each turn costs a cent: a thousand tokens at ten dollars a million."""
    prices, file = folder / "prices.json", folder / "quotas.toml"
    prices.write_text('{"claude-x": {"input": 10, "output": 10}}')
    file.write_text(quotas)
    turn = ScriptedTurn(text="Hi.", usage={"input_tokens": 600, "output_tokens": 400})
    with running(Script(turn=[turn], at_end="repeat")) as model:
        environment = {
            "ANTHROPIC_BASE_URL": model.url,
            "ANTHROPIC_API_KEY": "key",
            "PARLEY_PRICES": str(prices),
        }
        cluster = LocalCluster(folder, "--model", "claude-x", environment=environment)
        try:
            await cluster.add_host("h1", tenant_quotas=str(file))
            await cluster.add_host("h2", tenant_quotas=str(file))
            yield cluster, await cluster.add_gateway()
        finally:
            await cluster.close()


async def wait_spent(cluster: LocalCluster, count: int = 1) -> None:
    """Wait until so many pairs of a token and a host have written what was used."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for _ in cluster.cluster.registry.watch("spending.>"):
            if len(await cluster.cluster.registry.rows("spending.>")) >= count:
                return


async def refusal_of_prompt(server: ClusterServer, session: str, token: str) -> tuple[int, str]:
    status, answer = await server.request("POST", f"/sessions/{session}/prompts", {"content": "Hi"}, token)
    return status, answer.get("error", {}).get("message", "")


async def wait_for_status(server: ClusterServer, session: str, token: str, wanted: int) -> None:
    """Send prompts until one has a status: what another host has counted is known a moment later."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await refusal_of_prompt(server, session, token))[0] != wanted:  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(0.05)


async def test_what_a_token_has_spent_on_one_host_counts_on_the_other(tmp_path: Path) -> None:
    async with paid_cluster(tmp_path) as (cluster, server):
        token = await server.make_token("ann", "create", "prompt", tenant="acme", quotas={"tokens": 1})
        first, second = await two_hosts(cluster, server, token)
        result = await server.ask(first, "Hi")
        assert not result["is_error"], result
        await wait_spent(cluster)
        status, message = await refusal_of_prompt(server, second, token)
        assert (status, "the token 'ann'" in message) == (429, True)


async def test_what_the_tokens_of_a_tenant_have_spent_counts_for_all_of_them(tmp_path: Path) -> None:
    async with paid_cluster(tmp_path, "[acme]\nusd = 0.015\n[poor]\ntokens = 1000\n") as (cluster, server):
        ann = await server.make_token("ann", "create", "prompt", tenant="acme")
        bob = await server.make_token("bob", "create", "prompt", tenant="acme")
        first, second = await two_hosts(cluster, server, ann)
        assert (await server.ask(first, "Hi"))["total_cost_usd"] == pytest.approx(0.01)
        await wait_spent(cluster)
        _, made = await server.request("POST", "/sessions", {}, bob)
        await server.ask(made["session_id"], "Hi")  # the tenant has used less than its quota so far
        await wait_for_status(server, second, bob, 429)
        status, message = await refusal_of_prompt(server, second, ann)
        # Prompts that were sent while the second host did not know yet have cost something, too.
        assert status == 429
        assert re.fullmatch(r"the tenant 'acme' has used \$0\.0[2-9]00 of its quota of \$0\.0150", message)

        eve = await server.make_token("eve", "create", "prompt", tenant="poor")
        _, made = await server.request("POST", "/sessions", {}, eve)
        await server.ask(made["session_id"], "Hi")
        status, message = await refusal_of_prompt(server, made["session_id"], eve)
        assert (status, message) == (429, "the tenant 'poor' has used 1000 of its quota of 1000 model tokens")


async def test_turns_of_a_tenant_at_the_same_time_are_counted_on_all_hosts(tmp_path: Path) -> None:
    quotas = tmp_path / "quotas.toml"
    quotas.write_text("[acme]\nconcurrent_turns = 1\n")
    async with local_cluster(tmp_path, "--model", "offline", tenant_quotas=str(quotas)) as (cluster, server):
        ann = await server.make_token("ann", "create", "prompt", "approve", tenant="acme")
        first, second = await two_hosts(cluster, server, ann)
        body = {"content": 'call Bash {"command": "touch made"}\nsay Done.'}
        async with following(server, first) as viewer:
            status, _ = await server.request("POST", f"/sessions/{first}/prompts", body, ann)
            assert status == 202
            asked = await open_question(server, first)
            await wait_for_status(server, second, ann, 429)
            _, message = await refusal_of_prompt(server, second, ann)
            assert message == "the tenant 'acme' has reached its limit of 1 turns at a time"
            path = f"/questions/{first}/{asked['request_id']}/answer"
            assert (await server.request("POST", path, {"behavior": "deny"}, ann))[0] == 200
            await viewer.wait_for(viewer.results)
        await wait_for_status(server, second, ann, 202)


async def two_hosts(cluster: LocalCluster, server: ClusterServer, token: str) -> tuple[str, str]:
    """Two sessions on two hosts."""
    made = await create_on_both_hosts(cluster, server, token)
    return made[0], made[-1]


async def test_the_keys_of_a_tenant_are_nowhere_but_in_its_engine(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir(mode=0o700)
    with running(Script(turn=[ScriptedTurn(text="Hi.")], at_end="repeat")) as model:
        file = secrets / "acme.env"
        file.write_text(f"# the key\nANTHROPIC_API_KEY={SECRET}\nANTHROPIC_BASE_URL={model.url}\n")
        file.chmod(0o600)
        async with local_cluster(tmp_path, "--model", "claude-x", tenant_secrets=str(secrets)) as (cluster, server):
            token = await server.make_token("ann", "create", "prompt", tenant="acme")
            _, made = await server.request("POST", "/sessions", {}, token)
            result = await server.ask(made["session_id"], "Hi")
            assert result["result"] == "Hi."
            assert len(model.exchanges) == 1  # only the file of the tenant says where the model is
            rows = await cluster.cluster.registry.rows(">")
            assert rows
            assert not [row.key for row in rows if SECRET.encode() in row.value]
        files = [path for path in tmp_path.rglob("*") if path.is_file() and path != file]
        assert files
        assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


def test_keys_that_others_can_read_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "acme.env"
    file.write_text(f"ANTHROPIC_API_KEY={SECRET}\n")
    file.chmod(0o640)
    with pytest.raises(UsageError, match="chmod 600"):
        TenantSecrets(tmp_path).find("acme")
    file.chmod(0o600)
    assert TenantSecrets(tmp_path).find("acme") == {"ANTHROPIC_API_KEY": SECRET}
    assert TenantSecrets(tmp_path).find("other") == {}
    file.write_text(f"oops {SECRET}\n")
    with pytest.raises(UsageError) as refused:
        TenantSecrets(tmp_path).find("acme")
    assert SECRET not in str(refused.value)
