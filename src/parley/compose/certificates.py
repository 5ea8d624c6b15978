"""Which certificates are trusted by model calls and by MCP servers at a URL.

`SSL_CERT_FILE` and `SSL_CERT_DIR` stand in the place of the machine's certificates, `NODE_EXTRA_CA_CERTS` adds to them.
The `env` of the user's settings counts as well, so the variables are read from the session's environment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

Trust = Callable[[], "ssl.SSLContext"]
EXTRA = "NODE_EXTRA_CA_CERTS"


def make_trust(environment: Mapping[str, str], warn: Callable[[str], None]) -> Trust:
    """How to make the context of a TLS client. The maker raises OSError if the certificates cannot be read.

    Slow: it imports httpx2 and reads the machine's certificates, so it is called when TLS is first needed.
    """

    def make() -> ssl.SSLContext:
        import ssl

        import httpx2

        file, folder = environment.get("SSL_CERT_FILE") or None, environment.get("SSL_CERT_DIR") or None
        if file or folder:
            context = ssl.create_default_context(cafile=file, capath=folder)
        else:
            context = httpx2.create_ssl_context(trust_env=False)
        if extra := environment.get(EXTRA):
            try:
                context.load_verify_locations(extra)
            except OSError as exc:
                warn(f"warning: the certificates in {extra} ({EXTRA}) cannot be read and are not trusted: {exc}")
        return context

    return make
