"""Which marketplaces the managed settings permit."""

from __future__ import annotations

from typing import Any

import pytest

from parley.settings.policy import matches

SOURCE = {"source": "github", "repo": "acme/tools"}


@pytest.mark.parametrize(
    ("rule", "source", "allows", "blocks"),
    [
        (SOURCE, SOURCE, True, True),
        (SOURCE, {"source": "git", "url": "https://github.com/Acme/Tools.git"}, True, True),
        (SOURCE, {"source": "git", "url": "git@github.com:acme/tools"}, True, True),
        (SOURCE, {"source": "git", "url": "ssh://git@GitHub.com.:22//acme/%74ools/"}, True, True),
        (SOURCE, {"source": "git", "url": "https://github.com.evil.example/acme/tools"}, False, False),
        (SOURCE, {"source": "directory", "path": "/github.com/acme/tools"}, False, False),
        (SOURCE, {"source": "git", "url": "https://github.com/acme/tools", "path": "a/marketplace.json"}, True, True),
        (SOURCE, {"source": "git", "url": "https://github.com/acme/tools@evil.example/x"}, False, False),
        (SOURCE, {"source": "git", "url": "https://github.com@evil.example/acme/tools"}, False, False),
        (SOURCE, {**SOURCE, "ref": "v1"}, False, True),
        ({**SOURCE, "ref": "v1"}, SOURCE, False, False),
        ({**SOURCE, "ref": "v1"}, {**SOURCE, "ref": "v1"}, True, True),
        ({"source": "hostPattern", "hostPattern": "github.com"}, SOURCE, True, True),
        ({"source": "hostPattern", "hostPattern": "hub"}, SOURCE, False, True),
        ({"source": "hostPattern", "hostPattern": "("}, SOURCE, False, True),
        ({"source": "hostPattern", "hostPattern": ".*"}, {"source": "directory", "path": "/x"}, False, False),
        ({"source": "pathPattern", "pathPattern": "/opt/.*"}, {"source": "directory", "path": "/opt/x"}, True, True),
        ({"source": "pathPattern", "pathPattern": ".*"}, SOURCE, False, False),
        ("acme/tools", SOURCE, False, True),
    ],
)
def test_an_entry_allows_only_what_it_names_and_blocks_what_it_may_mean(
    rule: Any, source: dict[str, Any], allows: bool, blocks: bool
) -> None:
    assert (matches(rule, source, True), matches(rule, source, False)) == (allows, blocks)
