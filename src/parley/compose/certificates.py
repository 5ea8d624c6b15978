"""Which certificates are trusted by model calls and by MCP servers at a URL.

`SSL_CERT_FILE` and `SSL_CERT_DIR` stand in the place of the machine's certificates, `NODE_EXTRA_CA_CERTS` adds to them.
The `env` of the user's settings counts as well, so the variables are read from the session's environment.
"""

from __future__ import annotations

import os
import re
import ssl
import sys
from collections.abc import Callable, Mapping

Trust = Callable[[], "ssl.SSLContext"]
EXTRA = "NODE_EXTRA_CA_CERTS"
HASHED_NAME = r"[0-9a-f]{8}\.[0-9]"
"""A certificate that OpenSSL finds by its name."""
BUNDLES = (
    "/etc/ssl/cert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/cert.pem",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/ca-bundle.pem",
)
"""Where distributions keep all certificates in one file, for a Python that was built elsewhere."""


def make_trust(environment: Mapping[str, str], warn: Callable[[str], None]) -> Trust:
    """How to make the context of a TLS client. The maker raises OSError if the certificates cannot be read.

    Slow: it may read all of the machine's certificates, so it is called when TLS is first needed.
    """

    def make() -> ssl.SSLContext:
        file, folder = environment.get("SSL_CERT_FILE") or None, environment.get("SSL_CERT_DIR") or None
        is_given = file or folder
        context = ssl.create_default_context(cafile=file, capath=folder) if is_given else make_system_context()
        if extra := environment.get(EXTRA):
            try:
                context.load_verify_locations(extra)
            except OSError as exc:
                warn(f"warning: the certificates in {extra} ({EXTRA}) cannot be read and are not trusted: {exc}")
        return context

    return make


def make_system_context() -> ssl.SSLContext:
    """A context that trusts the machine's certificates.

    A folder with hashed names is preferred: OpenSSL reads one certificate of it per connection, and all of a file.
    """

    if sys.platform in ("darwin", "win32"):
        import truststore

        return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    paths = ssl.get_default_verify_paths()  # the compiled-in ones: the environment is not ours to read
    if is_hashed_folder(paths.openssl_capath):
        context.load_verify_locations(capath=paths.openssl_capath)
    elif bundle := next(filter(os.path.isfile, (paths.openssl_cafile, *BUNDLES)), None):
        context.load_verify_locations(bundle)
    return context


def is_hashed_folder(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(re.fullmatch(HASHED_NAME, entry.name) for entry in entries)
    except OSError:
        return False
