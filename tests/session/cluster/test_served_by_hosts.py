"""Tests of `parley serve` with a cluster in its place: two hosts, and a gateway without state."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.helpers.cluster import ClusterAsServer
from tests.process.gateway import test_bad_input as bad_input
from tests.process.gateway import test_callbacks as callbacks
from tests.process.gateway import test_editors as editors
from tests.process.gateway import test_serve as serve
from tests.process.gateway.console import test_session_views as session_views
from tests.process.gateway.console import test_sessions as sessions

CASES = [
    (serve, "test_a_prompt_over_a_socket_of_a_new_session"),
    (serve, "test_a_client_that_comes_back_gets_exactly_what_it_missed"),
    (serve, "test_events_come_over_http_too"),
    (serve, "test_a_question_goes_to_everyone_and_the_first_answer_counts"),
    (serve, "test_a_question_survives_the_death_of_the_server"),
    (serve, "test_control_requests_over_http_and_sockets_do_not_mix"),
    (serve, "test_wrong_requests_have_a_code"),
    (serve, "test_wrong_tokens_and_cursors_close_the_socket_with_a_code"),
    (bad_input, "test_wrong_tokens_and_foreign_pages"),
    (bad_input, "test_frames_that_are_no_lines"),
    (bad_input, "test_two_prompts_with_one_id"),
    (callbacks, "test_hooks_can_be_replaced_by_those_who_may"),
    (editors, "test_a_question_that_is_open_is_asked_again_after_a_kill"),
    (editors, "test_sessions_of_other_tenants_do_not_exist"),
    (sessions, "test_a_tenant_finds_and_watches_only_its_own"),
    (sessions, "test_the_list_has_pages"),
    (sessions, "test_changes_and_deletions_are_events"),
    (session_views, "test_turns_and_costs"),
]


@pytest.mark.parametrize(("module", "name"), CASES, ids=lambda value: value if isinstance(value, str) else "")
async def test_a_cluster_behaves_like_a_server(
    module: ModuleType, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "Server", ClusterAsServer)
    test: Callable[[Path], Coroutine[Any, Any, None]] = getattr(module, name)
    await test(tmp_path)
