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
    "rg": names("--pre --hostname-bin"),
    **dict.fromkeys(names("fd fdfind"), names("-x -X --exec --exec-batch")),
}
# Programs behind which a command may begin at any word.
ANYWHERE = re.compile(
    r"ld-linux.*|ld\.so|chrt|capsh|bwrap|firejail|proot|valgrind|ltrace|xvfb-run|dbus-run-session|cgexec"
)
# Programs that give another one a new name.
RENAMERS = names("cp mv ln install hash")
PROGRAM = re.compile(r"(?:/usr(?:/local)?)?/s?bin/[^/]+")
# Programs whose words are text for a shell, if there is a blank in them.
TEXTS = names(
    "su runuser script watch parallel flock env xargs ssh tmux screen hyperfine nix-shell mapfile readarray complete "
    "bind entr rsync sg chronic at tsp pwsh powershell capsh man"
)
# Builtins that evaluate subscripts: `test -v 'a[$(id)]'` runs id.
SUBSCRIPTS = names("printf test [ [[ let read declare typeset local export readonly unset getopts wait mapfile")
INTERPRETERS = re.compile(
    r"(?:python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|g?awk|mawk|nawk|tclsh|osascript)[\d.]*"
)
EDITORS = names("vi vim nvim view ex ed emacs less more man gdb")
QUOTED = re.compile(r"\"([^\"]*)\"|'([^']*)'|`([^`]*)`")
SUBSTITUTION = re.compile(r"\$\(|`")
# `--rsh=sh`, `ProxyCommand=sh`, `alias.x=!sh`, `--checkpoint-action=exec=sh`.
NAMED = re.compile(
    r"(?i)(?:[\w.-]+=)?[\w.-]*(?:exec|command|rsh|rsync-path|program|hook|helper|pager|editor|visual|askpass|browser|opener|"
    r"alias\.[\w-]+|sshcommand|fsmonitor|diff|textconv|filter\.[\w.-]+|shell|git_ssh|lessopen)=!?(?:exec=)?(.+)",
    re.DOTALL,
)
GIT_TEXTS = names("--exec -x foreach --upload-pack --receive-pack -u")
SED_RUN = re.compile(r"(?:^|[;/}\s])e\s+(.+)|[\d$]e\s*(.+)", re.DOTALL)
# `s/a/b/e` runs what it has made of a line.
SED_RUN_MADE = re.compile(r"([^\w\s])[gpiIMm\d]*e[gpiIMm\d]*$")
# What debuggers, databases and the like call a shell by, within their own languages.
SPOKEN = re.compile(r"(?:^|[\s;{])\.?(?:shell|system|spawn|exec)\s+(.+)", re.DOTALL)
SPEAKERS = names("gdb lldb sqlite3 expect")
READS_INPUT = names("at batch crontab")


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
        yield from (word[2:] for word in rest if word.startswith("-O") and word[2:])
    if name == "sed":
        yield from (found[1] or found[2] for word in rest if (found := SED_RUN.search(word)))
        made = ((word, found[1]) for word in rest if (found := SED_RUN_MADE.search(word)))
        yield from (piece for word, cut in made for piece in word.split(cut) if " " in piece)
    if name in SPEAKERS:
        yield from (found[1] for word in rest if (found := SPOKEN.search(word)))


def places(name: str, literal: Sequence[str]) -> Iterator[int]:
    """Where a command may begin behind a subcommand that runs it."""
    if ANYWHERE.fullmatch(name):
        yield from range(1, len(literal))
    if name in RENAMERS:
        yield from (place for place, word in enumerate(literal) if place and PROGRAM.fullmatch(word))
    known = SUBRUNNERS.get(name)
    if known:
        begin = next((place for place, word in enumerate(literal) if place and word in known), len(literal))
        yield from range(begin + 1, len(literal))
