"""Who hears of a change in the list of sessions."""

from __future__ import annotations

import json

from parley.gateway.index.session_list import SessionListEvents
from parley.gateway.security.access import Principal, Scope


async def test_of_a_session_that_changes_often_only_the_last_state_waits() -> None:
    events = SessionListEvents()
    watcher = events.watch(Principal("ann", "acme", frozenset({Scope.VIEW})))
    for _ in range(3):
        events.report_deleted("acme", "one")
    events.report_deleted("acme", "two")
    events.report_deleted("other", "three")
    assert [json.loads(event) for event in await watcher.take()] == [
        {"type": "deleted", "id": "one"},
        {"type": "deleted", "id": "two"},
    ]
    events.end(watcher)
    assert not events.has_watchers
