"""What the error of a failed connection says."""

from __future__ import annotations

import socket
import ssl

import httpx2
import pytest

from parley.models.http.failures import connection_error

CERTIFICATES = "(NODE_EXTRA_CA_CERTS names a file with further certificates)"
URL = "https://me:hush@h.test/v1?key=k"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def caused(cause: BaseException, kind: type[httpx2.TransportError] = httpx2.ConnectError) -> httpx2.TransportError:
    """An error as the HTTP client raises it: the cause is two levels below."""
    middle = OSError("All connection attempts failed")
    middle.__cause__ = cause
    error = kind("All connection attempts failed")
    error.__cause__ = middle
    return error


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
        (caused(ConnectionRefusedError(111, "Connection refused")), "connection refused by https://h.test/v1"),
        (
            caused(ExceptionGroup("several addresses", [ConnectionRefusedError(111, "x"), OSError(101, "y")])),
            "connection refused by https://h.test/v1",
        ),
        (
            caused(socket.gaierror(-2, "Name or service not known")),
            "the host name of https://h.test/v1 cannot be resolved (name or service not known)",
        ),
        (httpx2.ConnectTimeout(""), "no connection to https://h.test/v1 within 10 s"),
        (
            caused(verification()),
            f"TLS error with https://h.test/v1: certificate verify failed: self-signed certificate {CERTIFICATES}",
        ),
        (
            caused(wrong_version()),
            "TLS error with https://h.test/v1: wrong version number (is it an http:// server?)",
        ),
        (httpx2.ReadError(""), "no answer from https://h.test/v1: ReadError"),
        (httpx2.RemoteProtocolError("cut off"), "no answer from https://h.test/v1: cut off"),
    ],
)
def test_the_server_and_the_cause_are_named(exc: httpx2.TransportError, text: str) -> None:
    error = connection_error(exc, URL, 10)

    assert (error.message, error.kind, error.retryable, error.max_retries) == (text, "connection_failed", True, None)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://localhost:9", "http://[::1]:9"])
def test_nothing_listens_on_this_machine(url: str) -> None:
    error = connection_error(caused(ConnectionRefusedError(111, "Connection refused")), url, 10)

    assert (error.message, error.max_retries) == (f"connection refused by {url}: nothing listens there", 2)


@pytest.mark.parametrize(("bypassed", "note"), [("", True), ("h.test", False)])
def test_a_proxy_may_be_what_failed(monkeypatch: pytest.MonkeyPatch, bypassed: str, note: bool) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://me:hush@proxy.test")
    monkeypatch.setenv("NO_PROXY", bypassed)
    error = connection_error(caused(ConnectionRefusedError(111, "Connection refused")), URL, 10)

    through = " (through the proxy in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY)" if note else ""
    assert error.message == f"connection refused by https://h.test/v1{through}"
