"""What a user can do about an error of a model server: which key, model name or URL to check.

    add_advice(error, endpoint, "clade-sonnet-5-5")
    error.advice        -> "Did you mean claude-sonnet-5-5? `parley models` lists the known names."

Loaded when a call fails.
"""

from __future__ import annotations

import re

from parley.errors import ModelError
from parley.models.catalog import ALIASES, BUILT_IN, OPUSPLAN, list_backends, read_table
from parley.models.endpoint import ModelEndpoint, without_userinfo

LISTING = "`parley models` lists the known names."
WRONG_PLACE = (404, 405)
API_PATHS = ("/chat/completions", "/responses", "/messages")


def add_advice(error: ModelError, endpoint: ModelEndpoint, model: str) -> None:
    """Add the advice that the status of a response calls for."""
    if error.status in (401, 403):
        error.advice = advise_on_key(error.status, endpoint)
    elif error.status in WRONG_PLACE:
        is_about_model = "model" in error.message.lower()
        error.advice = advise_on_name(model, endpoint) if is_about_model else advise_on_url(endpoint)


def advise_on_key(status: int, endpoint: ModelEndpoint) -> str:
    if not endpoint.key_source:
        return f"No key was sent: set {endpoint.variables}_API_KEY."
    if status == 401:
        return f"Check the key from {endpoint.key_source}."
    return f"The key from {endpoint.key_source} does not have permission for this."


def advise_on_name(model: str, endpoint: ModelEndpoint) -> str:
    """Names of other servers are unknown here; the server itself may list them."""
    if not endpoint.is_messages_api:
        return f"The server may list its models at {without_userinfo(endpoint.url('/models'))}."
    near = find_similar_model(model)
    return f"Did you mean {near}? {LISTING}" if near else LISTING


def find_similar_model(name: str, cutoff: float = 0.6) -> str | None:
    """The model that a misspelt name most likely means."""
    from difflib import get_close_matches

    backend, slash, rest = name.partition("/")
    if slash and rest and backend in list_backends():
        return f"{backend}:{rest}"
    known = {*ALIASES, OPUSPLAN, *ALIASES.values(), *read_table(BUILT_IN)}  # the table has the built-in fake model, too
    names = sorted(name for name in known if not name.endswith(":"))
    undated = re.sub(r"-\d{8}$", "", name.lower())
    return next(iter(get_close_matches(undated, names, n=1, cutoff=cutoff)), None)


def advise_on_url(endpoint: ModelEndpoint) -> str:
    """The base URL of the Messages API ends before /v1, that of OpenAI's APIs after it."""
    base, variable = without_userinfo(endpoint.base_url).rstrip("/"), f"{endpoint.variables}_BASE_URL"
    meant = base
    for path in API_PATHS:
        meant = meant.removesuffix(path)
    meant = meant.removesuffix("/v1") if endpoint.is_messages_api else meant
    if not endpoint.is_messages_api and not has_version(meant):
        meant += "/v1"
    return f"Try {variable}={meant}" if meant != base else f"Check {variable} ({base})."


def has_version(url: str) -> bool:
    """Whether a part of the path names a version of the API, as in /v1 or /api/v3/openai."""
    parts = url.partition("://")[2].split("/")[1:]
    return any(part.startswith("v") and part[1:2].isdigit() for part in parts)
