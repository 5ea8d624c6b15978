"""Which environment variables settings may set, and who sees them.

Variables that the user sets reach commands and the engine. Variables that a trusted project sets
reach commands, and the engine only if nothing but the conversation depends on them. Variables that
select a server, contain a key, add a certificate, move the config directory or change the meaning of
a command are never accepted from a project.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from parley.settings.base import TREE, MergedSettings

REFUSED_FROM_TREE = r"""
    ANTHROPIC_(?!(DEFAULT_\w+_)?MODEL$|SMALL_FAST_MODEL$).*   # endpoint, key, headers; a model's name is allowed
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
    | {f"ANTHROPIC_DEFAULT_{name}_MODEL" for name in ("OPUS", "SONNET", "HAIKU", "FABLE")}
)
"""Variables of a trusted project that the engine itself reads."""
NEVER_OURS = frozenset({"HOME", "CLAUDE_CONFIG_DIR", "IS_SANDBOX"})
"""Variables that the engine reads only from the real environment: where the user's files are, and the sandbox."""


def is_refused(name: str) -> bool:
    """Whether a variable is never accepted from a project, even a trusted one."""
    return refused_names().fullmatch(name) is not None


@functools.cache
def refused_names() -> re.Pattern[str]:
    """Compiled on first use: it takes 2 ms, and most projects set no variable."""
    return re.compile(REFUSED_FROM_TREE, re.VERBOSE | re.IGNORECASE | re.DOTALL)


def environment_for_commands(base: Mapping[str, str], merged: MergedSettings) -> dict[str, str]:
    """Return the environment of child processes, before secrets are removed."""
    return {**base, **{name: value.value for name, value in merged.environment.items()}}


def own_environment(base: Mapping[str, str], merged: MergedSettings) -> dict[str, str]:
    """Return the environment that the engine reads."""
    ours = {
        name: value.value
        for name, value in merged.environment.items()
        if name not in NEVER_OURS and (value.source not in TREE or name in OURS_FROM_TREE)
    }
    return {**base, **ours}
