"""What went wrong with a connection, in words: which server, why, and what to do.

`connection_error` finds the cause below the exceptions of the HTTP client, which often say only that all attempts
failed. Loaded when a call fails.
"""

from __future__ import annotations

from collections.abc import Iterator

from parley.errors import ModelError
from parley.models.endpoint import is_loopback, without_userinfo

REFUSED_RETRIES = 2
"""For a refused connection on this machine: either the server is being restarted, or there is none."""
MAX_CAUSES = 10


def connection_error(exc: Exception, base_url: str, connect_seconds: float) -> ModelError:
    """The error for a connection that failed or broke."""
    import httpx2

    cause, where = find_cause(exc), without_userinfo(base_url)
    if isinstance(exc, httpx2.ConnectTimeout):
        text = f"no connection to {where} within {connect_seconds:g} s{describe_proxy(base_url)}"
    elif isinstance(cause, ConnectionRefusedError):
        text = f"connection refused by {where}{describe_proxy(base_url)}"
    elif is_named(cause, "gaierror"):
        text = f"the host name of {where} cannot be resolved ({reason_of(cause)}){describe_proxy(base_url)}"
    elif is_named(cause, "SSLError"):
        text = f"TLS error with {where}: {reason_of(cause)}{describe_tls(cause)}"
    else:
        text = f"no answer from {where}: {str(exc) or type(exc).__name__}"
    error = ModelError(text, kind="connection_failed", retryable=True)
    if isinstance(cause, ConnectionRefusedError) and is_loopback(base_url):
        error.message += ": nothing listens there"
        error.max_retries = REFUSED_RETRIES
    return error


def find_cause(exc: BaseException) -> BaseException:
    """The exception that started it."""
    *_, last = causes(exc)
    return last


def causes(exc: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = exc
    for _ in range(MAX_CAUSES):
        if current is None:
            return
        yield current
        if isinstance(current, BaseExceptionGroup):  # one per address of the host
            current = current.exceptions[0]
        else:
            current = current.__cause__ or current.__context__


def is_named(exc: BaseException, name: str) -> bool:
    """Whether a class of the exception has this name. Its module may not have been imported."""
    return any(cls.__name__ == name for cls in type(exc).__mro__)


def reason_of(exc: BaseException) -> str:
    """The reason that the system or OpenSSL gives, without numbers and source lines."""
    if found := getattr(exc, "verify_message", ""):
        return f"certificate verify failed: {found}"
    return str(getattr(exc, "reason", "") or getattr(exc, "strerror", "") or exc).replace("_", " ").lower()


def describe_tls(exc: BaseException) -> str:
    if is_named(exc, "SSLCertVerificationError"):
        return " (NODE_EXTRA_CA_CERTS names a file with further certificates)"
    if getattr(exc, "reason", None) in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return " (is it an http:// server?)"
    return ""


def describe_proxy(base_url: str) -> str:
    """That a proxy is in use: it may be what failed. Its address may contain a password."""
    if is_loopback(base_url):
        return ""
    from urllib.parse import urlsplit
    from urllib.request import getproxies, proxy_bypass

    url, proxies = urlsplit(base_url), getproxies()
    if not (proxies.get(url.scheme) or proxies.get("all")) or proxy_bypass(url.hostname or ""):
        return ""
    return " (through the proxy in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY)"
