"""What `parley cluster status` makes of the registry and the leases."""

from __future__ import annotations

from parley.cluster.base import ShardLease
from parley.cluster.session_summaries import ClusterSession
from parley.cluster.shards import HostInfo
from parley.cluster.status import Settings, summarize


def host(name: str, **more: object) -> HostInfo:
    fields: dict[str, object] = {"version": "1", "records": 1, "shards": [], "sessions": 0, "turns": 0, **more}
    return HostInfo(name=name, **fields)  # type: ignore[arg-type]


def leases(**owned: list[int]) -> dict[int, ShardLease]:
    return {
        shard: ShardLease(shard=shard, host=name, epoch=1, revision=1)
        for name, shards in owned.items()
        for shard in shards
    }


SETTINGS = Settings(shards=4, lease_seconds=3)


def test_a_cluster_whose_shards_all_have_a_live_owner_needs_no_attention() -> None:
    status = summarize({"a": host("a"), "b": host("b")}, leases(a=[0, 1], b=[2, 3]), [], SETTINGS)

    assert [(one.name, one.state, one.shards) for one in status.hosts] == [("a", "live", 2), ("b", "live", 2)]
    assert status.problems == []


def test_a_host_that_holds_leases_without_a_row_is_missing() -> None:
    status = summarize({"a": host("a")}, leases(a=[0, 1], b=[2, 3]), [], SETTINGS)

    assert [(one.name, one.state) for one in status.hosts] == [("a", "live"), ("b", "missing")]
    assert status.problems == ["host b is missing: it does not renew 2 leases, which end soon"]


def test_what_needs_attention_is_said() -> None:
    drained = Settings(shards=4, lease_seconds=3, drained=frozenset({"a"}), moves={0: "b"})
    one = host("a", waiting_writes=2, unreadable={"s": "it has records of version 2"})
    status = summarize({"a": one}, leases(a=[0]), [], drained)

    assert (status.hosts[0].state, status.leases[0].moves_to) == ("draining", "b")
    assert (status.unowned_shards, status.newer_sessions) == ([1, 2, 3], {"s": "it has records of version 2"})
    assert status.problems == [
        "2 sessions of host a wait for the log",
        "no host is live; start one with `parley host`",
        "3 of 4 shards have no owner; hosts claim them within seconds",
        "1 sessions wait for a host of a newer version",
    ]


def test_sessions_with_work_are_counted() -> None:
    listed = [
        ClusterSession(tenant="", creator="admin", host="a", has_work=has_work, info=None) for has_work in (True, False)
    ]
    status = summarize({"a": host("a")}, leases(a=[0, 1, 2, 3]), listed, SETTINGS)

    assert (status.sessions, status.sessions_with_work, status.open_questions) == (2, 1, 0)
