"""What the error of a failed connection says."""

from __future__ import annotations

import socket
import ssl

import pytest

from parley.models.http.failures import connection_error
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
