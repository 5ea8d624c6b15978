"""What the client that started us can bear."""

from __future__ import annotations

import pytest

from parley.settings.client_profile import takes_rate_limits


@pytest.mark.parametrize(
    ("entrypoint", "version", "takes"),
    [
        (None, None, True),
        ("sdk-cli", None, True),
        ("sdk-ts", "0.3.325", True),
        ("sdk-py", "0.2.182", True),
        ("sdk-py", "0.1.50", True),
        ("sdk-py", "0.1.20", False),
        ("sdk-py", "new", False),
        ("sdk-py", None, False),
        ("sdk-go", "1.0", False),
    ],
)
def test_a_line_about_the_quota_goes_only_to_those_who_survive_it(
    entrypoint: str | None, version: str | None, takes: bool
) -> None:
    given = {"CLAUDE_CODE_ENTRYPOINT": entrypoint, "CLAUDE_AGENT_SDK_VERSION": version}

    assert takes_rate_limits({name: value for name, value in given.items() if value is not None}) is takes
