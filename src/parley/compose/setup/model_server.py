"""Whether the server of the default model answers, found without a key and without spending tokens."""

from __future__ import annotations

from parley.compose.models import ModelFactory
from parley.models.catalog import get_backend
from parley.models.endpoint import is_loopback, without_userinfo
from parley.protocol.base import Struct
from parley.settings import backends

SECONDS = 5
"""How long a server may take to answer."""


class ServerStatus(Struct, frozen=True, kw_only=True):
    """What is known of the server of a model."""

    backend: str
    address: str = ""
    """Safe to show. Empty if the backend has none of its own."""
    variable: str = ""
    """The variable that names another server than the provider's own. Only such a server is contacted."""
    problem: str = ""
    """Why it does not answer: a sentence with the address."""


def probe_server(models: ModelFactory) -> ServerStatus:
    """Send a request that costs nothing, if the user configured the address. Raises UsageError."""
    backend = models.find_adapter(models.resolve(models.name()))
    server = get_backend(backend).server
    if server is None:
        return ServerStatus(backend=backend)
    url = backends.find_url(server, models.environment)
    shown = without_userinfo(url)
    variable, address, standard = backends.find_address(backend, models.environment)
    if not address or address.rstrip("/") == standard.rstrip("/"):
        return ServerStatus(backend=backend, address=shown)
    return ServerStatus(backend=backend, address=shown, variable=variable, problem=contact(url, models))


def contact(url: str, models: ModelFactory) -> str:
    """Any response is an answer; returns what went wrong, in the words of a run."""
    import httpx2

    try:
        verify = False if url.startswith("http:") else models.trust()()
        with httpx2.Client(verify=verify, timeout=SECONDS, trust_env=not is_loopback(url)) as client:
            client.head(without_userinfo(url))
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError, ImportError) as exc:
        from parley.models.failures import connection_error

        # Only the kind of other errors: their text may contain the URL of a proxy with a password.
        cause = find_os_error(exc) if isinstance(exc, httpx2.ConnectError) else None
        return connection_error(cause or OSError(type(exc).__name__), url).message
    return ""


def find_os_error(exc: BaseException | None) -> OSError | None:
    """The error of the system behind one of the HTTP client."""
    while exc is not None and not isinstance(exc, OSError):
        exc = exc.__cause__ or exc.__context__
    return exc
