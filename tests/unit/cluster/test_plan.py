"""Which shards a host claims and gives up."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from parley.cluster.shards import HostInfo, ShardPlan, Situation, find_living, make_plan

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
    assert plan == ShardPlan([], [], list(range(SHARDS)), 4)


def test_a_host_that_drains_gives_up_everything_and_does_not_count() -> None:
    assert make_plan(situation(host("one", is_draining=True), host("two")), [1, 2]) == ShardPlan([], [1, 2], [], 0)
    assert make_plan(situation(host("one"), host("two", is_draining=True), taken=(0,)), [0]).surplus == 0
    assert make_plan(situation(host("one"), host("two"), drained=["one"]), [1, 2]) == ShardPlan([], [1, 2], [], 0)


def test_a_shard_that_is_to_move_is_given_up_by_one_and_claimed_by_the_other() -> None:
    away = situation(host("one"), host("two"), taken=(0, 1), moves={1: "two"})
    assert make_plan(away, [0, 1]).gives == [1]
    here = situation(host("one"), host("two"), taken=(0, 1, 2, 3), moves={7: "one"})
    assert make_plan(here, [0, 1, 2, 3]).claims == [7]


def test_a_shard_that_was_moved_to_a_host_stays_there() -> None:
    seen = situation(host("one"), host("two"), taken=tuple(range(SHARDS)), moves={0: "one", 1: "one"})
    assert make_plan(seen, range(SHARDS)) == ShardPlan([], [], list(range(2, SHARDS)), 4)


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


def test_a_move_to_a_host_that_cannot_run_the_sessions_has_no_effect() -> None:
    old = msgspec.structs.replace(host("two"), newer_shards=[0])
    plan = make_plan(situation(host("one", records=2), old, taken=(0,), moves={0: "two"}), [0])
    assert 0 not in plan.gives


def test_what_a_host_of_the_same_version_cannot_run_is_not_claimed() -> None:
    other = msgspec.structs.replace(host("two"), newer_shards=[0])
    assert 0 not in make_plan(situation(host("one"), other, host("new", records=2)), []).claims


def test_a_host_keeps_what_only_older_hosts_could_have() -> None:
    old = msgspec.structs.replace(host("two"), newer_shards=list(range(SHARDS)))
    assert make_plan(situation(host("one", records=2), old), range(SHARDS)) == ShardPlan([], [], [], 0)


@given(
    records=st.lists(st.integers(1, 2), min_size=1, max_size=4),
    moves=st.dictionaries(st.integers(0, SHARDS - 1), st.integers(0, 4)),
    newer=st.sets(st.integers(0, SHARDS - 1)),
    owners=st.lists(st.integers(-1, 3), min_size=SHARDS, max_size=SHARDS),
    drained=st.sets(st.integers(0, 3), max_size=1),
)
def test_shards_come_to_rest(
    records: list[int], moves: dict[int, int], newer: set[int], owners: list[int], drained: set[int]
) -> None:
    """Hosts that act on the same rows, one after the other, until nothing changes."""
    names = [f"host-{number}" for number in range(len(records))]
    active = [name for number, name in enumerate(names) if number not in drained]
    readers = [name for name in active if records[names.index(name)] == 2]
    owner = {shard: names[number] for shard, number in enumerate(owners) if 0 <= number < len(names)}
    pins = {shard: f"host-{number}" for shard, number in moves.items()}
    found: dict[str, set[int]] = {name: set() for name in names}

    def step(name: str, overdue: frozenset[int]) -> None:
        rows = {
            other: msgspec.structs.replace(host(other, records=version), newer_shards=sorted(found[other]))
            for other, version in zip(names, records, strict=True)
        }
        seen = Situation(
            host=name,
            hosts=rows,
            taken=frozenset(owner),
            moves=pins,
            drained={names[number] for number in drained if number < len(names)},
            shards=SHARDS,
            unreadable=found[name],
            overdue=overdue,
        )
        plan = make_plan(seen, [shard for shard, holder in owner.items() if holder == name])
        for shard in (*plan.gives, *plan.spare[: plan.surplus]):
            del owner[shard]
        for shard in plan.claims:
            assert shard not in owner
            owner[shard] = name
        if rows[name].records < 2:
            found[name] |= {shard for shard in newer if owner.get(shard) == name}

    def play() -> dict[int, str]:
        free = frozenset(range(SHARDS)) - frozenset(owner)
        for name in names:
            step(name, free - frozenset(owner))
        return dict(owner)

    for _ in range(4 * SHARDS):
        play()
    at_rest = play()
    assert play() == at_rest
    if active:
        assert set(at_rest) == set(range(SHARDS))
        assert set(at_rest.values()) <= set(active)
    for shard, name in at_rest.items():
        if shard in newer and readers:
            assert name in readers
        elif pins.get(shard) in active:
            assert name == pins[shard]


def test_a_host_whose_leases_have_ended_does_not_count_whatever_its_row_says() -> None:
    # "two" has given shard 0 to "one" just before it died, so that one of the shards in its row has an owner.
    known = {info.name: info for info in (host("one", 0), host("two", 0, 1), host("new"))}

    assert set(find_living(known, {"one"})) == {"one", "new"}
