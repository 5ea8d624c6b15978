"""The history of operations on a cluster, and what must hold of it: pure functions over what clients saw.

An operation has a begin, an end and an outcome. `ok`: the client was told that it happened. `refused`: it was told that
it did not. `unknown`: nothing was told, so it may have happened, also later. From that follows what the end must show:
nothing that was acknowledged is lost, nothing has two effects, and effects of one client keep their order.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

OK, REFUSED, UNKNOWN = "ok", "refused", "unknown"
LOST, DOUBLED, RAN_TWICE = "[lost]", "[doubled]", "[run twice]"
"""What a problem is, at the end of its text. The summaries of programs count them."""


@dataclass
class Operation:
    """What a client did. `end` is infinite while the outcome is unknown."""

    client: int
    kind: str
    session: str
    value: str = ""
    """The id of a prompt, the title of a rename, the state that a read found."""
    begin: float = 0.0
    end: float = math.inf
    outcome: str = UNKNOWN


@dataclass
class Final:
    """What is there at the end."""

    lines: dict[str, Sequence[str]]
    """The lines of each session that still exists."""
    titles: dict[str, str]
    results: dict[str, Sequence[str]]
    """The ids of the prompts of each result line, by session."""
    prompts: dict[str, Sequence[str]]
    """The ids of the prompts in the order in which the engine took them, by session."""
    ran: Counter[str] = field(default_factory=Counter)
    """How often the command of a prompt ran."""


def check(history: Sequence[Operation], final: Final) -> list[str]:
    """All that does not hold."""
    return [
        *check_existence(history, final),
        *check_prompts(history, final),
        *check_order(history, final),
        *check_titles(history, final),
        *(
            f"the command of the prompt {uuid} ran {count} times {RAN_TWICE}"
            for uuid, count in final.ran.items()
            if count > 1
        ),
    ]


def check_existence(history: Sequence[Operation], final: Final) -> Iterable[str]:
    """A session is there from the end of its creation to the begin of its deletion, and not after the deletion."""
    deletes = select(history, "delete")
    for session, operations in by_session(history).items():
        created = next((one for one in operations if one.kind == "create" and one.outcome == OK), None)
        if created is None:
            continue
        first_delete = min((one.begin for one in deletes.get(session, ())), default=math.inf)
        deleted = min((one.end for one in deletes.get(session, ()) if one.outcome == OK), default=math.inf)
        for one in operations:
            is_missing = one.outcome == REFUSED and one.value == "unknown_session"
            if is_missing and one.begin > created.end and one.end < first_delete:
                yield f"session {session} was unknown to a {one.kind}, though it was created and not deleted {LOST}"
            if one.outcome == OK and one.kind != "delete" and one.begin > deleted:
                yield f"session {session} answered a {one.kind} after its deletion"
        if first_delete == math.inf and session not in final.lines:
            yield f"session {session} is missing {LOST}"
        if deleted < math.inf and session in final.lines:
            yield f"session {session} is there again after its deletion"


def check_prompts(history: Sequence[Operation], final: Final) -> Iterable[str]:
    """An acknowledged prompt has one result, one whose outcome is unknown at most one, a refused one none."""
    for session, prompts in select(history, "prompt").items():
        if session not in final.lines:
            continue
        results = Counter(final.results.get(session, ()))
        taken = Counter(final.prompts.get(session, ()))
        for one in prompts:
            if one.outcome == OK and results[one.value] != 1:
                kind = DOUBLED if results[one.value] else LOST
                yield f"session {session}: the acknowledged prompt {one.value} has {results[one.value]} results {kind}"
            elif results[one.value] > 1:
                yield f"session {session}: the prompt {one.value} has {results[one.value]} results {DOUBLED}"
            if taken[one.value] > 1:
                yield f"session {session}: the prompt {one.value} was taken {taken[one.value]} times {DOUBLED}"
            if one.outcome == REFUSED and taken[one.value]:
                yield f"session {session}: the refused prompt {one.value} was taken"


def check_order(history: Sequence[Operation], final: Final) -> Iterable[str]:
    """A prompt that was acknowledged before another one was sent is taken before it."""
    for session, prompts in select(history, "prompt").items():
        place = {uuid: at for at, uuid in reversed(list(enumerate(final.prompts.get(session, ()))))}
        known = [one for one in prompts if one.outcome == OK and one.value in place]
        for one in known:
            for other in known:
                if one.end < other.begin and place[one.value] > place[other.value]:
                    yield f"session {session}: the prompt {other.value} overtook {one.value}"


def check_titles(history: Sequence[Operation], final: Final) -> Iterable[str]:
    """The last title is that of a rename which no acknowledged one has replaced."""
    for session, renames in select(history, "rename").items():
        if session not in final.lines:
            continue
        last = final.titles.get(session, "")
        acknowledged = [one for one in renames if one.outcome == OK]
        written = next((one for one in renames if one.value == last), None)
        if written is None:
            if acknowledged:
                yield f"session {session}: the acknowledged title {acknowledged[-1].value!r} is missing {LOST}"
        elif written.outcome == REFUSED:
            yield f"session {session}: the refused title {last!r} was set"
        elif newer := [one for one in acknowledged if one.begin > written.end]:
            yield f"session {session}: the title is {last!r}, but {newer[-1].value!r} was acknowledged later {LOST}"


def by_session(history: Sequence[Operation]) -> dict[str, list[Operation]]:
    found: defaultdict[str, list[Operation]] = defaultdict(list)
    for one in history:
        if one.session:
            found[one.session].append(one)
    return found


def select(history: Sequence[Operation], kind: str) -> dict[str, list[Operation]]:
    return {
        session: chosen
        for session, operations in by_session(history).items()
        if (chosen := [one for one in operations if one.kind == kind])
    }
