"""Certificates for tests."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make_certificate(folder: Path, name: str) -> tuple[str, str]:
    """A certificate for 127.0.0.1, made by openssl, and its key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return str(certificate), str(key)
