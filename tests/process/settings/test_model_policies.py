"""Models and providers that settings forbid are never called."""

from __future__ import annotations

import pytest

from tests.helpers.policies import Json, Machine, MessagesApi, control

DENIED: Json = {"deniedModels": ["opus"]}


def env(api: MessagesApi) -> Json:
    return {"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "a-key", "CLAUDE_CODE_MAX_RETRIES": "0"}


def test_a_denied_model_is_replaced_by_an_allowed_default(machine: Machine, api: MessagesApi) -> None:
    done = machine.run("--model", "opus", managed=DENIED, script=None, **env(api))

    assert set(api.models) == {"claude-sonnet-5-5"}
    assert done.init["model"] == "claude-sonnet-5-5"
    assert done.notices == [
        'Model "opus" is restricted by your organization\'s settings. Using claude-sonnet-5-5 instead.'
    ]


@pytest.mark.parametrize(
    "spelling",
    [
        "claude-opus-5-5",
        "claude-opus-5-5-20260101",
        "us.anthropic.claude-opus-5-5-v1:0",
        "CLAUDE-OPUS-5-5",
        "opus[1m]",
        "opusplan",
    ],
)
def test_every_spelling_of_a_denied_model_is_denied(machine: Machine, api: MessagesApi, spelling: str) -> None:
    machine.run("--model", spelling, managed={"deniedModels": ["claude-opus-5-5"]}, script=None, **env(api))

    assert set(api.models) == {"claude-sonnet-5-5"}


def test_without_any_allowed_model_the_session_does_not_start(machine: Machine, api: MessagesApi) -> None:
    managed = {"deniedModels": ["opus", "sonnet", "haiku", "fable"]}

    done = machine.run(managed=managed, script=None, **env(api))

    assert (done.code, api.models) == (1, [])
    assert done.result["startup_failure_reason"] == "managed_settings_invalid"


def test_set_model_refuses_a_denied_model(machine: Machine, api: MessagesApi) -> None:
    done = machine.run(managed=DENIED, script=None, send=(control("set_model", model="opus"),), **env(api))

    (answer,) = done.of("control_response")
    assert answer["response"]["error"] == "the model claude-opus-5-5 is not allowed by the settings (deniedModels)"
    assert "claude-opus-5-5" not in api.models


def test_a_subagent_cannot_use_a_denied_model(machine: Machine, api: MessagesApi) -> None:
    wanted = {"description": "d", "prompt": "p", "subagent_type": "general-purpose", "model": "opus"}
    api.answers = [[{"type": "tool_use", "id": "t1", "name": "Agent", "input": wanted}]]

    done = machine.run(managed=DENIED, script=None, **env(api))

    assert "claude-opus-5-5" not in api.models
    assert "the model claude-opus-5-5 is not allowed by the settings (deniedModels)" in done.outputs[0][1]
    assert done.result["subtype"] == "success"


def test_a_fallback_model_that_is_denied_is_left_out(machine: Machine, api: MessagesApi) -> None:
    api.failures = {"claude-sonnet-5-5": 529}

    done = machine.run("--model", "sonnet", managed=DENIED, user={"fallbackModel": ["opus"]}, script=None, **env(api))

    assert set(api.models) == {"claude-sonnet-5-5"}
    assert "the fallback model opus is skipped" in done.stderr


def test_fallback_models_may_be_a_list(machine: Machine, api: MessagesApi) -> None:
    api.failures = {"claude-sonnet-5-5": 529}

    done = machine.run("--model", "sonnet", user={"fallbackModel": ["haiku"]}, script=None, **env(api))

    assert api.models[-1] == "claude-haiku-5-5"
    assert done.result["result"] == "Done."


@pytest.mark.parametrize(
    ("denied", "asked"), [([], {"claude-sonnet-5-5", "claude-haiku-5-5"}), (["haiku"], {"claude-sonnet-5-5"})]
)
def test_side_queries_do_not_use_a_denied_model(
    machine: Machine, api: MessagesApi, denied: list[str], asked: set[str]
) -> None:
    done = machine.run(
        *("--model", "sonnet", "--prompt-suggestions", "true"),
        managed={"deniedModels": denied},
        script=None,
        until="prompt_suggestion",
        **env(api),
    )

    assert len(api.models) == 2
    assert set(api.models) == asked
    assert done.of("prompt_suggestion")[0]["suggestion"] == "Done."


def test_only_available_models_can_be_used(machine: Machine, api: MessagesApi) -> None:
    available = {"availableModels": ["sonnet", "claude-haiku-5"], "enforceAvailableModels": True}
    asked = [control("set_model", name, model=name) for name in ("sonnet", "haiku", "opus", "my-own-opus")]

    done = machine.run(managed=available, script=None, send=tuple(asked), **env(api))

    answers = {line["response"]["request_id"]: line["response"]["subtype"] for line in done.of("control_response")}
    assert answers == {"sonnet": "success", "haiku": "success", "opus": "error", "my-own-opus": "error"}
    assert done.init["model"] == "claude-haiku-5-5"


def test_clients_are_offered_only_models_that_can_be_used(machine: Machine, api: MessagesApi) -> None:
    done = machine.run(managed=DENIED, script=None, send=(control("initialize"),), **env(api))

    offered = done.of("control_response")[0]["response"]["response"]["models"]
    assert [row["value"] for row in offered] == ["fable", "sonnet", "haiku", "offline"]


def test_an_empty_list_of_available_models_leaves_the_default(machine: Machine, api: MessagesApi) -> None:
    machine.run("--model", "sonnet", managed={"availableModels": []}, script=None, **env(api))

    assert set(api.models) == {"claude-opus-5-5"}


def test_exact_matching_does_not_allow_other_versions(machine: Machine, api: MessagesApi) -> None:
    managed = {"availableModels": ["claude-sonnet-5-5"], "availableModelsMatch": "exact"}
    asked = [control("set_model", name, model=name) for name in ("claude-sonnet-5-5-20260101", "claude-sonnet-5-5-1")]

    done = machine.run(managed=managed, script=None, send=tuple(asked), **env(api))

    answers = [line["response"]["subtype"] for line in done.of("control_response")]
    assert answers == ["success", "error"]


def test_an_override_names_the_model_on_the_server(machine: Machine, api: MessagesApi) -> None:
    done = machine.run(
        "--model", "sonnet", user={"modelOverrides": {"claude-sonnet-5-5": "arn:x"}}, script=None, **env(api)
    )

    assert set(api.models) == {"arn:x"}
    assert done.init["model"] == "claude-sonnet-5-5"


def test_an_override_names_the_model_on_a_server_of_another_api(machine: Machine, api: MessagesApi) -> None:
    server: Json = {"OPENAI_BASE_URL": api.url, "OPENAI_API_KEY": "k", "CLAUDE_CODE_MAX_RETRIES": "0"}
    machine.run("--model", "openai:gpt-5", user={"modelOverrides": {"gpt-5": "house-gpt"}}, script=None, **server)

    assert set(api.models) == {"house-gpt"}


def test_an_override_cannot_name_a_denied_model(machine: Machine, api: MessagesApi) -> None:
    user = {"modelOverrides": {"claude-sonnet-5-5": "claude-opus-5-5"}}

    done = machine.run("--model", "sonnet", managed=DENIED, user=user, script=None, **env(api))

    assert (done.code, api.models) == (1, [])
    assert "modelOverrides names the model claude-opus-5-5" in done.result["errors"][0]


def test_a_variable_that_renames_a_model_does_not_lift_the_policy(machine: Machine, api: MessagesApi) -> None:
    renamed: Json = {"ANTHROPIC_DEFAULT_OPUS_MODEL": "big", "ANTHROPIC_DEFAULT_SONNET_MODEL": "claude-opus-5-5"}

    for name in ("opus", "opus[1m]", "big[1m]"):
        machine.run("--model", name, managed=DENIED, script=None, **env(api), **renamed)
        assert set(api.models) == {"claude-haiku-5-5"}
        api.requests.clear()

    available = {"availableModels": ["sonnet"], "enforceAvailableModels": True}
    done = machine.run("--model", "sonnet", managed=available, script=None, **env(api), **renamed)
    assert (done.code, api.models) == (1, [])


def test_a_custom_endpoint_must_be_listed_and_pinned(machine: Machine, api: MessagesApi) -> None:
    refused = machine.run(managed={"allowedProviders": ["anthropic"]}, script=None, **env(api))
    unpinned = machine.run(managed={"allowedProviders": ["customEndpoint"]}, script=None, **env(api))

    assert api.models == []
    for done in (refused, unpinned):
        assert done.result["startup_failure_reason"] == "provider_not_allowed"
        assert "ANTHROPIC_BASE_URL" in done.result["errors"][0]

    pinned = {"allowedProviders": ["customEndpoint"], "env": {"ANTHROPIC_BASE_URL": api.url}}
    assert machine.run(managed=pinned, script=None, **env(api)).result["result"] == "Done."


def test_a_provider_that_is_not_listed_is_not_used(machine: Machine) -> None:
    done = machine.run(
        "--model", "openai:gpt-5", managed={"allowedProviders": ["anthropic"]}, script=None, OPENAI_API_KEY="k"
    )

    assert done.result["errors"] == ["the model openai:gpt-5 cannot be used: allowedProviders does not list 'openai'"]


def test_contracted_prices_replace_the_table(machine: Machine, api: MessagesApi) -> None:
    rates = {"input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0}
    managed = {"modelPricing": {"overrides": {"claude-sonnet-5-5": rates}, "multiplier": 0.5}}

    done = machine.run("--model", "sonnet", managed=managed, script=None, **env(api))

    assert done.result["total_cost_usd"] == pytest.approx(1.5 * len(api.models))


def test_effort_is_limited(machine: Machine, api: MessagesApi) -> None:
    machine.run(
        "--effort",
        "max",
        managed={"maxEffortLevel": "high"},
        user={"maxEffortLevel": "medium"},
        script=None,
        **env(api),
    )
    machine.run(user={"maxEffortLevel": "low"}, script=None, **env(api))
    machine.run(user={"maxEffortLevel": "xhigh"}, script=None, **env(api))

    efforts = [request.get("output_config", {}).get("effort") for request in api.requests if request.get("tools")]
    assert efforts == ["medium", "low", None]


def test_thinking_can_be_switched_off(machine: Machine, api: MessagesApi) -> None:
    machine.run(user={"alwaysThinkingEnabled": False}, script=None, **env(api))
    machine.run(user={"showThinkingSummaries": True}, script=None, **env(api))

    thinking = [request.get("thinking") for request in api.requests if request.get("tools")]
    assert thinking == [None, {"type": "adaptive", "display": "summarized"}]


@pytest.mark.parametrize(
    ("settings", "variables", "ttl"),
    [
        ({"promptCacheTtl": "1h"}, {}, "1h"),
        ({}, {"ENABLE_PROMPT_CACHING_1H": "1"}, "1h"),
        ({"promptCacheTtl": "5m"}, {"ENABLE_PROMPT_CACHING_1H": "true"}, "1h"),
        ({"promptCacheTtl": "1h"}, {"ENABLE_PROMPT_CACHING_1H": "0"}, "1h"),
        ({}, {"ENABLE_PROMPT_CACHING_1H": "1", "CLAUDE_CODE_PROMPT_CACHE_TTL": "5m"}, "5m"),
    ],
)
def test_the_prompt_cache_lives_as_long_as_the_settings_and_variables_say(
    machine: Machine, api: MessagesApi, settings: Json, variables: Json, ttl: str
) -> None:
    machine.run(user=settings, script=None, **env(api), **variables)

    request = next(request for request in api.requests if request.get("tools"))
    marked = [*request["system"], request["messages"][-1]["content"][-1]]
    assert [block["cache_control"] for block in marked] == [{"type": "ephemeral", "ttl": ttl}] * len(marked)


def test_the_prompt_cache_of_subagents_has_a_setting_of_its_own(machine: Machine, api: MessagesApi) -> None:
    wanted = {"description": "d", "prompt": "Look", "subagent_type": "general-purpose"}
    api.answers = [[{"type": "tool_use", "id": "t1", "name": "Agent", "input": wanted}]]

    machine.run(user={"promptCacheTtl": "5m", "subagentPromptCacheTtl": "1h"}, script=None, **env(api))

    main, subagent, *_ = [request for request in api.requests if request.get("tools")]
    assert main["system"][0]["cache_control"]["ttl"] == "5m"
    assert subagent["system"][0]["cache_control"]["ttl"] == "1h"
