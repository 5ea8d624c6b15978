"""Which host serves each route, and what the replies of all hosts become."""

from __future__ import annotations

import msgspec
from starlette.datastructures import QueryParams

from parley.cluster.gateway.merge import LOCAL, RULES, find_rule, join_costs, join_metrics, join_sessions
from parley.cluster.session_summaries import ClusterSession
from parley.gateway.http.app import ServerApi, route
from parley.gateway.index.session_list import SessionInfo
from parley.gateway.reporting import Metrics

NO_QUERY = QueryParams()


def info(id: str, used_at: float, **fields: object) -> SessionInfo:
    plain = {
        "id": id,
        "cwd": "/work",
        "title": f"title of {id}",
        "state": "idle",
        "is_loaded": True,
        "clients": 1,
        "open_questions": 0,
        "last_line": 3,
        "created_at": 1.0,
        "used_at": used_at,
        "model": None,
        "permission_mode": None,
        "cost_usd": 0.0,
        "turns": 1,
        "last_error": None,
        "preview": "",
    }
    return msgspec.convert({**plain, **fields}, SessionInfo)


def known(info: SessionInfo) -> ClusterSession:
    return ClusterSession(tenant="", creator="admin", host="h1", has_work=False, info=info)


def test_every_rule_has_a_route_and_what_no_host_serves_the_gateway_does() -> None:
    assert set(RULES) <= {row.name for row in route.rows}
    local = {row.name for row in route.rows if find_rule(row) == LOCAL}
    assert local == {row.name for row in route.rows if row.name in vars(ServerApi)}


def test_the_list_has_the_sessions_of_all_hosts_and_those_that_no_host_has_loaded() -> None:
    bodies = [
        msgspec.json.encode({"loaded": ["a", "b"], "sessions": [info("a", 5)], "total": 1}),
        msgspec.json.encode({"loaded": ["c"], "sessions": [info("c", 9)], "total": 1}),
    ]
    stored = [known(info("a", 4)), known(info("b", 8)), known(info("d", 7, state="running"))]
    found = msgspec.json.decode(join_sessions(bodies, NO_QUERY, stored))
    # b is loaded, and its host has left it out of the list.
    assert ([row["id"] for row in found["sessions"]], found["total"]) == (["c", "d", "a"], 3)
    at_rest = found["sessions"][1]
    assert (at_rest["state"], at_rest["is_loaded"], at_rest["clients"]) == ("idle", False, 0)

    page = msgspec.json.decode(join_sessions(bodies, QueryParams("offset=1&limit=1"), stored))
    assert ([row["id"] for row in page["sessions"]], page["total"]) == (["d"], 3)
    searched = msgspec.json.decode(join_sessions([bodies[0]], QueryParams("search=of+D"), stored))
    assert [row["id"] for row in searched["sessions"]] == ["d", "a"]


def test_costs_of_one_model_on_several_hosts_are_added() -> None:
    def row(usd: float | None, **key: str) -> dict[str, object]:
        return {**key, "usd": usd, "input_tokens": 1, "output_tokens": 2, "cache_read_tokens": 3, "turns": 1}

    def body(session: str, usd: float | None) -> bytes:
        return msgspec.json.encode(
            {
                "by_session": [row(usd, id=session, title="")],
                "by_model": [row(usd, model="m")],
                "by_day": [row(usd, day="2026-11-17")],
                "budget": {"usd": 9.0, "used": usd or 0},
            }
        )

    found = msgspec.json.decode(join_costs([body("a", 1.0), body("b", None), body("c", 2.0)], NO_QUERY, []))
    assert [each["id"] for each in found["by_session"]] == ["c", "a", "b"]
    added = {"input_tokens": 3, "output_tokens": 6, "cache_read_tokens": 9, "turns": 3}
    assert found["by_model"] == [{**row(3.0, model="m"), **added}]
    assert found["budget"] == {"usd": 9.0, "used": 2.0}  # each host knows what was used in the whole cluster


def test_figures_of_all_hosts_are_one_page() -> None:
    one, other = Metrics(), Metrics()
    one.count("parley_results_total", outcome="success")
    one.count("parley_prompts_total", 2)
    other.count("parley_prompts_total", 3)
    gauges = [("parley_sessions", "Sessions stored.", 4.0), ("parley_loop_lag_p99_seconds", "Lag.", 0.5)]
    page = join_metrics([one.render(gauges), other.render(gauges)], NO_QUERY, []).decode().splitlines()
    assert "parley_prompts_total 5" in page
    assert 'parley_results_total{outcome="success"} 1' in page
    assert "parley_results_total 0" not in page
    assert ("parley_sessions 8" in page, "parley_loop_lag_p99_seconds 0.5" in page) == (True, True)
    assert page.count("# TYPE parley_sessions gauge") == 1


def test_large_figures_keep_their_digits() -> None:
    page = b"# HELP parley_lines_total Lines.\n# TYPE parley_lines_total counter\nparley_lines_total 1234567\n"

    assert b"parley_lines_total 2469134\n" in join_metrics([page, page], NO_QUERY, [])
