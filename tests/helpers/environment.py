"""The variables that the tests see: those they need, and nothing else of the machine.

`python -m tests.run` starts pytest with them; `tests/conftest.py` sets them if pytest was started directly.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

KEPT = (
    # Programs of the machine, and the configuration of pip and npm.
    *("HOME", "PATH"),
    # CONTRIBUTING.md: the tests pass in every locale and time zone.
    *("LC_ALL", "TZ"),
    # What a person chooses for a run.
    *("PARLEY_REQUIRE_COMPAT", "PARLEY_NEWEST_CLIENTS", "PARLEY_ORIGINAL", "PARLEY_TESTS_START"),
    *("PARLEY_TEST_WORKSPACE", "ESCAPE_SETUID", "PARITY_SHOW"),
)
KEPT_PREFIX = "PYTEST_"
"""Options of pytest, and the names of its workers."""
REGISTRY_PREFIXES = ("PIP_", "NPM_CONFIG_", "PYRIGHT_PYTHON_")
REGISTRY = (
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
)
"""How pip and npm find their settings and reach their registries. Our own clients read some of these, too."""
TEMPORARY = ("TMPDIR", "CLAUDE_CODE_TMPDIR")
"""`python -m tests.run` sets them to its folder."""
HIDDEN = "PARLEY_TESTS_REGISTRIES"
"""Holds the variables for registries as JSON. It is set in every environment that this module has made."""


def make_environment(machine: Mapping[str, str]) -> dict[str, str]:
    """The variables for tests on a machine that has others."""
    if HIDDEN in machine:
        return dict(machine)
    kept = {name: value for name, value in machine.items() if name in KEPT or name.startswith(KEPT_PREFIX)}
    registries = {
        name: value
        for name, value in machine.items()
        if name.upper() in REGISTRY or name.upper().startswith(REGISTRY_PREFIXES)
    }
    return {**kept, HIDDEN: json.dumps(registries)}


def make_install_environment(tests: Mapping[str, str]) -> dict[str, str]:
    """The variables of a test with those of the machine for registries."""
    registries: dict[str, str] = json.loads(tests.get(HIDDEN, "{}"))
    return {**tests, **registries}


def base_environment() -> dict[str, str]:
    """For a program that is to find nothing of the person who runs the tests, but keeps to the folder of the run."""
    return {name: os.environ[name] for name in ("PATH", *TEMPORARY) if name in os.environ}
