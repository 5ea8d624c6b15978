"""What went wrong with a connection, in words: which server, and why. Loaded when a call fails."""

from __future__ import annotations

import errno
import re

from parley.errors import ModelError
from parley.models.endpoint import is_loopback, without_userinfo

REFUSED_RETRIES = 2
"""For a refused connection on this machine: either the server is being restarted, or there is none."""
UNREACHABLE = frozenset({errno.EADDRNOTAVAIL, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EAFNOSUPPORT})
"""Errors of a host's other addresses that say nothing about the server."""
NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"})


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
