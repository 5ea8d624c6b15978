"""What went wrong with a call to a model's server, in words, and what the user can do about it. Loaded when one fails.

connection_error(exc, base_url)                             which server cannot be reached, and why
add_advice(error, endpoint, "clade-sonnet-5-5")             which key, model name or URL to check
error.advice        -> "Did you mean claude-sonnet-5-5? `parley models` lists the known names."
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from parley.errors import ModelError
from parley.models.catalog import ALIASES, BUILT_IN, OPUSPLAN, list_backends, read_table
from parley.models.endpoint import ModelEndpoint, is_loopback, without_userinfo
from parley.models.http.response import event_data

RETRYABLE = frozenset({401, 408, 409, 429, 500, 502, 503, 504, 529})
"""Includes 401: a key helper or gateway may have refreshed the key."""
INVALID_REQUEST = r"""['"]loc['"]: ?[(\[]|\bvalidation errors? for \w|RequestValidationError"""
"""Some servers report a request that they cannot validate as 500. It gets the same answer if it is repeated."""
REFUSED_RETRIES = 2
"""For a refused connection on this machine: either the server is being restarted, or there is none."""
UNREACHABLE = frozenset({errno.EADDRNOTAVAIL, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EAFNOSUPPORT})
"""Errors of a host's other addresses that say nothing about the server."""
NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"})
LISTING = "`parley models` lists the known names."
WRONG_PLACE = (404, 405)
NO_TOOLS = (
    "The model or its server cannot call tools. Choose a model that can, start llama.cpp with --jinja or vLLM with "
    "--enable-auto-tool-choice, or start Parley without tools (--tools '')."
)
SMALL_CONTEXT = (
    "Start the server with a larger context (llama.cpp: --ctx-size, Ollama: OLLAMA_CONTEXT_LENGTH, vLLM: "
    "--max-model-len), and set contextWindow of the model in `models` of the settings to it."
)
NO_STREAM = "Parley needs streamed answers: enable them on the server, or put a proxy that streams in front of it."
LACKS = {
    r"context[ _]?(length|window|size)|exceeds? the available context|maximum context|too many tokens": SMALL_CONTEXT,
    r"(tools?|functions?)\b.*(support|enabled?\b|jinja)|support[^.]*\b(tool|function)s?\b|--jinja": NO_TOOLS,
    r"stream\w*[^.]*(not|un)[ -]?(support|implement|allow|avail)|not support[^.]*stream": NO_STREAM,
}
"""What a server says that lacks something, and the advice."""
API_PATHS = ("/chat/completions", "/responses", "/messages")


def connection_error(exc: Exception, base_url: str, *, by_proxy: bool = False) -> ModelError:
    """The error for a connection that failed or broke. `by_proxy`: it may be the proxy that failed."""
    where = without_userinfo(base_url)
    through = " (through the proxy in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY)" if by_proxy else ""
    if is_refused(exc):
        if is_loopback(base_url):
            error = make_error(f"connection refused by {where}: nothing listens there")
            error.max_retries = REFUSED_RETRIES
            return error
        return make_error(f"connection refused by {where}{through}")
    # The modules of these classes are slow to load, and may not be loaded yet.
    if is_named(exc, "gaierror"):
        return make_error(f"the host name of {where} cannot be resolved ({reason_of(exc)}){through}")
    if is_named(exc, "SSLError"):
        return make_error(f"TLS error with {where}: {reason_of(exc)}{advise_on_tls(exc)}")
    return make_error(f"no answer from {where}: {str(exc) or type(exc).__name__}{through}")


def make_error(text: str) -> ModelError:
    return ModelError(text, kind="connection_failed", retryable=True)


def is_refused(exc: Exception) -> bool:
    """Whether the server refused the connection, on all of its addresses that can be reached.

    If they fail in different ways, asyncio raises one error with their texts.
    """
    if isinstance(exc, ConnectionRefusedError):
        return True
    found = {int(number) for number in re.findall(r"\[Errno (\d+)\]", str(exc))} if type(exc) is OSError else set()
    return errno.ECONNREFUSED in found and found <= {errno.ECONNREFUSED, *UNREACHABLE}


def is_named(exc: Exception, name: str) -> bool:
    return any(cls.__name__ == name for cls in type(exc).__mro__)


def reason_of(exc: Exception) -> str:
    """The reason that the system or OpenSSL gives, without numbers and source lines."""
    if found := getattr(exc, "verify_message", ""):
        return f"certificate verify failed: {found}"
    return str(getattr(exc, "reason", "") or getattr(exc, "strerror", "") or exc).replace("_", " ").lower()


def advise_on_tls(exc: Exception) -> str:
    if is_named(exc, "SSLCertVerificationError"):
        return " (to trust more certificates, set NODE_EXTRA_CA_CERTS to a file that contains them)"
    return " (is it an http:// server?)" if getattr(exc, "reason", None) in NOT_TLS else ""


def parse_refusal(status: int, headers: Mapping[str, str], content: bytes) -> ModelError:
    """The error of a response other than 200 with a body like `{"error": {"type": ..., "message": ...}}`."""
    if 300 <= status < 400:
        return ModelError("the API answered with a redirect, and redirects are not followed", status=status)
    error = read_error(content)
    text = str(error.get("message") or content[:200].decode(errors="replace") or "no details")
    return ModelError(
        text,
        status=status,
        kind=str(error.get("type") or "api_error"),
        retryable=(status in RETRYABLE or status >= 500) and not (status == 500 and re.search(INVALID_REQUEST, text)),
        retry_after_seconds=parse_retry_after(headers.get("retry-after")),
        request_id=headers.get("request-id") or headers.get("x-request-id"),
    )


def read_error(content: bytes) -> dict[str, Any]:
    """The `error` object of a body, or {}. Gateways may send it as an event of the stream that was asked for."""
    if content.startswith(b"data:"):
        content = event_data(content.partition(b"\n\n")[0]) or b""
    try:
        error: Any = msgspec.json.decode(content).get("error")
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError, RecursionError):
        return {}
    return error if isinstance(error, dict) else {}


def parse_retry_after(text: str | None) -> float | None:
    """The retry-after header in seconds. Dates are ignored; the usual backoff applies."""
    try:
        return max(0.0, float(text)) if text else None
    except ValueError:
        return None


def add_advice(error: ModelError, endpoint: ModelEndpoint, model: str) -> None:
    """Add the advice that the status of a response calls for."""
    if error.status in (401, 403):
        error.advice = advise_on_key(error.status, endpoint)
    elif error.status in WRONG_PLACE:
        is_about_model = "model" in error.message.lower()
        error.advice = advise_on_name(model, endpoint) if is_about_model else advise_on_url(endpoint)
    elif error.status is None:
        error.advice = advise_on_url(endpoint)
    elif not endpoint.is_messages_api:
        error.advice = next(
            (advice for pattern, advice in LACKS.items() if re.search(pattern, error.message, re.I)), ""
        )


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
