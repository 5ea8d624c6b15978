"""Which shards a host claims and gives up."""

from __future__ import annotations

from parley.cluster.host_info import HostInfo
from parley.cluster.shards import Plan, Situation, find_living, make_plan

SHARDS = 8


def host(name: str, *shards: int, records: int = 1, is_draining: bool = False) -> HostInfo:
    return HostInfo(
        name=name, version="", records=records, shards=list(shards), sessions=0, turns=0, is_draining=is_draining
    )


def situation(*hosts: HostInfo, taken: tuple[int, ...] = (), **more: object) -> Situation:
    known = {info.name: info for info in hosts}
    return Situation(host="one", hosts=known, taken=taken, shards=SHARDS, **more)  # type: ignore[arg-type]


def test_a_single_host_claims_everything() -> None:
    plan = make_plan(situation(host("one")), [])
    assert sorted(plan.claims) == list(range(SHARDS))


def test_a_host_claims_its_share() -> None:
    plan = make_plan(situation(host("one"), host("two"), host("three"), taken=(0,)), [0])
    assert len(plan.claims) == 2
    assert plan.surplus == 0


def test_two_hosts_that_start_together_prefer_different_shards() -> None:
    seen = situation(host("one"), host("two"))
    other = Situation(host="two", hosts=seen.hosts, taken=(), shards=SHARDS)
    assert make_plan(seen, []).claims != make_plan(other, []).claims


def test_a_host_gives_up_what_is_above_its_share() -> None:
    plan = make_plan(situation(host("one"), host("two"), taken=tuple(range(SHARDS))), range(SHARDS))
    assert plan == Plan([], [], 4)


def test_a_host_that_drains_gives_up_everything_and_does_not_count() -> None:
    assert make_plan(situation(host("one", is_draining=True), host("two")), [1, 2]) == Plan([], [1, 2], 0)
    assert make_plan(situation(host("one"), host("two", is_draining=True), taken=(0,)), [0]).surplus == 0
    assert make_plan(situation(host("one"), host("two"), drained=["one"]), [1, 2]) == Plan([], [1, 2], 0)


def test_a_shard_that_is_to_move_is_given_up_by_one_and_claimed_by_the_other() -> None:
    away = situation(host("one"), host("two"), taken=(0, 1), moves={1: "two"})
    assert make_plan(away, [0, 1]).gives == [1]
    here = situation(host("one"), host("two"), taken=(0, 1, 2, 3), moves={7: "one"})
    assert make_plan(here, [0, 1, 2, 3]).claims == [7]


def test_a_move_to_a_host_that_is_gone_has_no_effect() -> None:
    plan = make_plan(situation(host("one"), taken=(0,), moves={0: "gone", 1: "gone"}), [0])
    assert plan.gives == []
    assert 1 in plan.claims


def test_a_shard_with_sessions_of_a_newer_version_is_left_to_a_newer_host() -> None:
    alone = situation(host("one"), host("two"), taken=(0,), unreadable=[0])
    assert make_plan(alone, [0]).gives == []
    newer = situation(host("one"), host("two", records=2), taken=(0,), unreadable=[0, 1])
    plan = make_plan(newer, [0])
    assert plan.gives == [0]
    assert 1 not in plan.claims


def test_a_host_whose_leases_have_ended_does_not_count_whatever_its_row_says() -> None:
    # "two" has given shard 0 to "one" just before it died, so that one of the shards in its row has an owner.
    known = {info.name: info for info in (host("one", 0), host("two", 0, 1), host("new"))}

    assert set(find_living(known, {"one"})) == {"one", "new"}
