"""Parley as an MCP client against the official suite, one test per scenario and revision (drivers/mcp_client.py)."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compat.harness import DRIVERS, RUN_SECONDS, installed
from tests.compat.install import MCP_SUITE
from tests.helpers.environment import base_environment

OLD, NEW = "2025-11-25", "2026-07-28"
EXTENSION = "extension"
SCENARIOS = {
    "initialize": ("2025-06-18", OLD),
    "tools_call": ("2025-06-18", OLD, NEW),
    "elicitation-sep1034-client-defaults": (OLD,),
    "sse-retry": (OLD,),
    "request-metadata": (NEW,),
    "sep-2322-client-request-state": (NEW,),
    "http-standard-headers": (NEW,),
    "http-custom-headers": (NEW,),
    "http-invalid-tool-headers": (NEW,),
    "json-schema-ref-no-deref": (NEW,),
    "json-schema-2020-12-preservation": (OLD, NEW),
    "auth/metadata-default": (OLD, NEW),
    "auth/metadata-var1": (OLD, NEW),
    "auth/metadata-var2": (OLD, NEW),
    "auth/metadata-var3": (OLD, NEW),
    "auth/basic-cimd": (OLD, NEW),
    "auth/scope-from-www-authenticate": (OLD, NEW),
    "auth/scope-from-scopes-supported": (OLD, NEW),
    "auth/scope-omitted-when-undefined": (OLD, NEW),
    "auth/scope-step-up": (OLD, NEW),
    "auth/scope-retry-limit": (OLD, NEW),
    "auth/token-endpoint-auth-basic": ("2025-06-18", OLD, NEW),
    "auth/token-endpoint-auth-post": ("2025-06-18", OLD, NEW),
    "auth/token-endpoint-auth-none": ("2025-06-18", OLD, NEW),
    "auth/pre-registration": (OLD, NEW),
    "auth/2025-03-26-oauth-metadata-backcompat": ("2025-03-26",),
    "auth/2025-03-26-oauth-endpoint-fallback": ("2025-03-26",),
    "auth/resource-mismatch": (NEW,),
    "auth/offline-access-scope": (NEW,),
    "auth/offline-access-not-supported": (NEW,),
    "auth/authorization-server-migration": (NEW,),
    "auth/iss-supported": (NEW,),
    "auth/iss-not-advertised": (NEW,),
    "auth/iss-supported-missing": (NEW,),
    "auth/iss-wrong-issuer": (NEW,),
    "auth/iss-unexpected": (NEW,),
    "auth/iss-normalized": (NEW,),
    "auth/metadata-issuer-mismatch": (NEW,),
    "auth/client-credentials-basic": (EXTENSION,),
}
"""Every scenario that applies, with the revisions at which it runs."""
NOT_APPLICABLE = {
    "auth/client-credentials-jwt": "an extension: credentials are a client secret, not a signed assertion",
    "auth/enterprise-managed-authorization": "an extension: there is no identity provider that Parley trusts",
    "auth/dpop": "an extension: tokens are not bound to keys",
    "auth/dpop-nonce": "an extension: tokens are not bound to keys",
    "auth/wif-jwt-bearer": "an extension: workload identities are not read",
    "sep-2640-client-no-prefetch": "an extension: skills of MCP servers are not loaded",
    "sep-2640-client-verify-digest": "an extension: skills of MCP servers are not loaded",
    "sep-2640-client-verify-size": "an extension: skills of MCP servers are not loaded",
    "sep-2640-client-verify-frontmatter": "an extension: skills of MCP servers are not loaded",
}


def run_suite(folder: Path, *words: str) -> str:
    suite = installed(MCP_SUITE)
    program = suite.program()
    assert program is not None
    done = subprocess.run(
        [program, str(suite.place / "node_modules" / MCP_SUITE.package / "dist" / "index.js"), *words],
        cwd=folder,
        env={**base_environment(), "HOME": str(folder), "LANG": "C.UTF-8", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("scenario", "version"), [(scenario, version) for scenario, versions in SCENARIOS.items() for version in versions]
)
def test_the_suite_finds_nothing_wrong(tmp_path: Path, scenario: str, version: str) -> None:
    command = shlex.join([sys.executable, str(DRIVERS / "mcp_client.py")])
    wanted = [] if version == EXTENSION else ["--spec-version", version]
    limit = ["--timeout", str(RUN_SECONDS * 900)]
    output = run_suite(tmp_path, "client", "--command", command, "--scenario", scenario, *wanted, *limit, "-o", "out")
    assert "OVERALL: PASSED" in output, output
    assert re.search(r"Passed: [1-9]\d*/", output), output


def test_every_scenario_of_the_suite_is_run_or_named_with_a_reason(tmp_path: Path) -> None:
    listed = re.findall(r"- (\S+) \[([^]]*)\]", run_suite(tmp_path, "list", "--client"))
    known = {name: list(versions) for name, versions in SCENARIOS.items()}
    known |= {name: [EXTENSION] for name in NOT_APPLICABLE}
    assert {name: versions.split(",") for name, versions in listed} == known
