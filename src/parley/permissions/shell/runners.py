"""Programs that run what their words hold, in ways of their own. Only for finding denies.

    list(texts("ssh", ["ssh", "host", "rm x"]))              ["rm x"]: a shell will read it
    list(places("docker", ["docker", "exec", "c", "rm"]))    [2, 3]: a command may begin there

The wrappers that simply put their words in front of a command are in finder.py. What is missed here is found
nowhere, so it is wide: a word too many asks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from parley.permissions.shell.simple import names

# Subcommands behind which a command may begin at any word.
SUBRUNNERS = {
    **dict.fromkeys(names("docker podman nerdctl kubectl oc docker-compose"), names("exec run compose")),
    **dict.fromkeys(names("npm pnpm yarn bun npx bunx pipx"), names("exec x dlx -c --call")),
    **dict.fromkeys(names("uv poetry pipenv bundle conda mamba hatch pdm rye direnv mise asdf"), names("run exec")),
    **dict.fromkeys(names("perf"), names("stat record trace")),
    "git": names("run foreach"),
    "go": names("-exec -toolexec"),
}
# Programs whose words are text for a shell, if there is a blank in them.
TEXTS = names(
    "su runuser script watch parallel flock env xargs ssh tmux screen hyperfine nix-shell mapfile readarray complete "
    "bind entr rsync sg chronic at tsp"
)
# Builtins that evaluate subscripts: `test -v 'a[$(id)]'` runs id.
SUBSCRIPTS = names("printf test [ [[ let read declare typeset local export readonly unset getopts wait mapfile")
INTERPRETERS = re.compile(
    r"(?:python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|g?awk|mawk|nawk|tclsh|osascript)[\d.]*"
)
EDITORS = names("vi vim nvim view ex ed emacs less more man")
QUOTED = re.compile(r"\"([^\"]*)\"|'([^']*)'|`([^`]*)`")
SUBSTITUTION = re.compile(r"\$\(|`")
# `--rsh=sh`, `ProxyCommand=sh`, `alias.x=!sh`, `--checkpoint-action=exec=sh`.
NAMED = re.compile(
    r"(?i)(?:[\w.-]+=)?[\w.-]*(?:exec|command|rsh|rsync-path|program|hook|helper|pager|editor|visual|askpass|browser|opener|"
    r"alias\.[\w-]+|sshcommand|fsmonitor|diff|textconv|filter\.[\w.-]+|shell|git_ssh|lessopen)=!?(?:exec=)?(.+)",
    re.DOTALL,
)
GIT_TEXTS = names("--exec -x foreach --upload-pack --receive-pack -u")
SED_RUN = re.compile(r"(?:^|[;\d/$}\s])e\s+(.+)", re.DOTALL)
READS_INPUT = names("at batch")


def texts(name: str, literal: Sequence[str]) -> Iterator[str]:
    """Words, and parts of words, that some shell may read."""
    rest = literal[1:]
    yield from (found[1] for word in rest if (found := NAMED.fullmatch(word)))
    if name in TEXTS:
        yield from (word for word in rest if " " in word)
    if name in SUBSCRIPTS:
        yield from (word for word in rest if SUBSTITUTION.search(word))
    if INTERPRETERS.fullmatch(name):
        yield from ("".join(quoted.groups("")) for word in rest for quoted in QUOTED.finditer(word))
    if name in EDITORS:
        yield from (word.rpartition("!")[2] for word in rest if "!" in word)
    if name == "git":
        yield from (word for flag, word in pairwise(rest) if flag in GIT_TEXTS)
    if name == "sed":
        yield from (found[1] for word in rest if (found := SED_RUN.search(word)))


def places(name: str, literal: Sequence[str]) -> Iterator[int]:
    """Where a command may begin behind a subcommand that runs it."""
    if name.startswith("ld-linux"):
        yield from range(1, len(literal))
    known = SUBRUNNERS.get(name)
    if known:
        begin = next((place for place, word in enumerate(literal) if place and word in known), len(literal))
        yield from range(begin + 1, len(literal))
