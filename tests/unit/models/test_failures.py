"""What the error of a failed connection says."""

from __future__ import annotations

import socket
import ssl
from typing import Any

import pytest

from parley.errors import ModelError
from parley.models.endpoint import ModelEndpoint
from parley.models.failures import add_advice, connection_error, find_similar_model
from parley.models.http.response import BadResponse

CERTIFICATES = "(to trust more certificates, set NODE_EXTRA_CA_CERTS to a file that contains them)"
THROUGH = " (through the proxy in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY)"
URL = "https://me:hush@h.test/v1?key=k"
REFUSED = ConnectionRefusedError(111, "Connect call failed ('192.0.2.1', 443)")
BOTH = (
    "Multiple exceptions: [Errno {}] Connect call failed ('::1', 9, 0, 0), [Errno 111] Connect call failed ('::1', 9)"
)


def verification() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed (_ssl.c:1006)")
    error.verify_message = "self-signed certificate"
    return error


def wrong_version() -> ssl.SSLError:
    error = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)")
    error.reason = "WRONG_VERSION_NUMBER"
    return error


@pytest.mark.parametrize(
    ("exc", "text"),
    [
        (REFUSED, "connection refused by https://h.test/v1"),
        (OSError(BOTH.format(111)), "connection refused by https://h.test/v1"),
        (OSError(BOTH.format(99)), "connection refused by https://h.test/v1"),
        (OSError(BOTH.format(13)), f"no answer from https://h.test/v1: {BOTH.format(13)}"),
        (
            socket.gaierror(-2, "Name or service not known"),
            "the host name of https://h.test/v1 cannot be resolved (name or service not known)",
        ),
        (
            verification(),
            f"TLS error with https://h.test/v1: certificate verify failed: self-signed certificate {CERTIFICATES}",
        ),
        (wrong_version(), "TLS error with https://h.test/v1: wrong version number (is it an http:// server?)"),
        (ConnectionResetError(), "no answer from https://h.test/v1: ConnectionResetError"),
        (BadResponse("cut off"), "no answer from https://h.test/v1: cut off"),
    ],
)
def test_the_server_and_the_cause_are_named(exc: Exception, text: str) -> None:
    error = connection_error(exc, URL)

    assert (error.message, error.kind, error.retryable, error.max_retries) == (text, "connection_failed", True, None)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://localhost:9", "http://[::1]:9"])
@pytest.mark.parametrize("exc", [REFUSED, OSError(BOTH.format(111))])
def test_nothing_listens_on_this_machine(exc: OSError, url: str) -> None:
    error = connection_error(exc, url)

    assert (error.message, error.max_retries) == (f"connection refused by {url}: nothing listens there", 2)


def test_a_proxy_may_be_what_failed() -> None:
    assert connection_error(REFUSED, URL, by_proxy=True).message == f"connection refused by https://h.test/v1{THROUGH}"


LISTING = "`parley models` lists the known names."


def advice(status: int, message: str, model: str = "m", base_url: str = "http://127.0.0.1:1", **fields: Any) -> str:
    error = ModelError(message, status=status)
    add_advice(error, ModelEndpoint(base_url=base_url, auth=None, **fields), model)
    return error.advice


@pytest.mark.parametrize(
    ("status", "source", "variables", "expected"),
    [
        (401, "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC", "Check the key from ANTHROPIC_AUTH_TOKEN."),
        (401, "OPENAI_API_KEY", "OPENAI", "Check the key from OPENAI_API_KEY."),
        (401, "", "ANTHROPIC", "No key was sent: set ANTHROPIC_API_KEY."),
        (403, "", "OPENAI", "No key was sent: set OPENAI_API_KEY."),
        (403, "apiKeyHelper", "ANTHROPIC", "The key from apiKeyHelper does not have permission for this."),
        (400, "OPENAI_API_KEY", "OPENAI", ""),
        (500, "OPENAI_API_KEY", "OPENAI", ""),
    ],
)
def test_a_rejected_key_is_named_by_its_source(status: int, source: str, variables: str, expected: str) -> None:
    assert advice(status, "no", key_source=source, variables=variables) == expected


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("clade-sonnet-5-5", "claude-sonnet-5-5"),
        ("claude-sonet-4-5-20250929", "claude-sonnet-4-5"),
        ("opus-5-5", "claude-opus-5-5"),
        ("Offline", "offline"),
        ("openai/gpt", "openai:gpt"),
        ("openai-responses/gpt-5", "openai-responses:gpt-5"),
        ("nobody/gpt", None),
        ("qwen3", None),
        ("", None),
    ],
)
def test_a_misspelt_name_is_compared_with_the_known_ones(name: str, meant: str | None) -> None:
    assert find_similar_model(name) == meant


def test_a_model_that_the_messages_api_does_not_have_may_be_misspelt() -> None:
    assert advice(404, "model: opuss", "opuss") == f"Did you mean opus? {LISTING}"
    assert advice(404, "model: qwen3", "qwen3") == LISTING


def test_the_models_of_another_server_are_unknown_here() -> None:
    found = advice(404, "no such model", "opuss", base_url="http://me:pw@h.test/v1?key=k", variables="OPENAI")

    assert found == "The server may list its models at http://h.test/v1/models."


@pytest.mark.parametrize(
    ("variables", "url", "expected"),
    [
        ("OPENAI", "http://h:1", "Try OPENAI_BASE_URL=http://h:1/v1"),
        ("OPENAI", "http://h:1/", "Try OPENAI_BASE_URL=http://h:1/v1"),
        ("OPENAI", "http://h:1/v1/chat/completions", "Try OPENAI_BASE_URL=http://h:1/v1"),
        ("OPENAI", "http://h:1/v1", "Check OPENAI_BASE_URL (http://h:1/v1)."),
        ("OPENAI", "http://h:1/api/v3/x", "Check OPENAI_BASE_URL (http://h:1/api/v3/x)."),
        ("OPENAI", "http://me:pw@h:1?key=k", "Try OPENAI_BASE_URL=http://h:1/v1"),
        ("ANTHROPIC", "http://h:1/v1", "Try ANTHROPIC_BASE_URL=http://h:1"),
        ("ANTHROPIC", "http://h:1/v1/messages/", "Try ANTHROPIC_BASE_URL=http://h:1"),
        ("ANTHROPIC", "http://h:1", "Check ANTHROPIC_BASE_URL (http://h:1)."),
    ],
)
@pytest.mark.parametrize("status", [404, 405])
def test_a_path_that_the_server_does_not_have_suggests_a_url(
    status: int, variables: str, url: str, expected: str
) -> None:
    assert advice(status, "Not Found", base_url=url, variables=variables) == expected
