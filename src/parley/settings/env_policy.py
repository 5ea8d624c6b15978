"""Which variables settings may set, and for whom.

What the person sets reaches commands and our own lookups. What a trusted project sets
reaches commands, and our own lookups only where nothing but the conversation depends on
it. Whatever leads to a server, carries a key, vouches for a certificate, moves the config
folder or changes what a judged command means is refused from a project in any case.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from parley.settings.base import TREE, Merged

REFUSED_FROM_TREE = r"""
    ANTHROPIC_(?!(DEFAULT_\w+_)?MODEL$|SMALL_FAST_MODEL$).*   # endpoint, key, headers; a model's name is none
    | (OPENAI|AWS|AZURE|GOOGLE|GCLOUD|CLOUDSDK|VERTEX|BEDROCK|PARLEY)_.*
    | CLAUDE_CODE_(OAUTH|API_KEY|USE|SKIP|EXTRA_BODY|PROXY|CERT|CLIENT|HOST|ENABLE_TELEMETRY|TMPDIR|SHELL).*
    | OTEL_.* | CLOUD_ML_REGION
    | \w*_PROXY | \w*_BASE_URL | \w*_API_BASE | \w*API_?KEY | \w*AUTH_TOKEN
    | NODE_EXTRA_CA_CERTS | NODE_TLS_\w+ | NODE_OPTIONS | SSL\w* | \w*_CA_BUNDLE | \w*SSL_\w+ | \w*_ASKPASS
    | GIT_(CONFIG|PROXY|SSH|EXEC|ASKPASS|TEMPLATE|EXTERNAL)\w* | \w*CREDENTIAL\w*
    | HOME | CLAUDE_CONFIG_DIR | XDG_\w+ | TMPDIR | IS_SANDBOX
    | PATH | SHELL | LD_\w+ | DYLD_\w+ | BASH_ENV | ENV | SHELLOPTS | BASHOPTS | IFS | PS4 | PROMPT_COMMAND
    | GLOBIGNORE | EXECIGNORE | CDPATH | BASH_FUNC_.* | BASH_(XTRACEFD|COMPAT|LOADABLES_PATH) | POSIXLY_CORRECT
    | PAGER | GIT_PAGER | \w*EDITOR | RIPGREP_CONFIG_PATH
    """
OURS_FROM_TREE = frozenset(
    {"ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", "CLAUDE_CODE_EFFORT_LEVEL", "CLAUDE_CODE_MAX_OUTPUT_TOKENS"}
    | {"CLAUDE_CODE_ENABLE_TASKS", "MAX_THINKING_TOKENS"}
)
"""The lookups of ours that a trusted project may answer."""
NEVER_OURS = frozenset({"HOME", "CLAUDE_CONFIG_DIR", "IS_SANDBOX"})
"""Where the person's files are, and in what we run, is said by the real environment alone."""


def is_refused(name: str) -> bool:
    """Whether a variable does not count from a project, trusted or not."""
    return refused_names().fullmatch(name) is not None


@functools.cache
def refused_names() -> re.Pattern[str]:
    """Compiled when a project sets a variable: most do not, and it takes 2 ms."""
    return re.compile(REFUSED_FROM_TREE, re.VERBOSE | re.IGNORECASE | re.DOTALL)


def for_commands(base: Mapping[str, str], merged: Merged) -> dict[str, str]:
    """The environment of children, keys not yet taken out."""
    return {**base, **{name: value.value for name, value in merged.environment.items()}}


def for_us(base: Mapping[str, str], merged: Merged) -> dict[str, str]:
    """The environment that our own lookups see."""
    ours = {
        name: value.value
        for name, value in merged.environment.items()
        if name not in NEVER_OURS and (value.source not in TREE or name in OURS_FROM_TREE)
    }
    return {**base, **ours}
