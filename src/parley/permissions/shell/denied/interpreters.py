"""Programs that run what their words hold, in ways of their own. Only for finding denies.

    list(texts("ssh", ["ssh", "host", "rm x"]))              ["rm x"]: a shell will read it
    list(places("docker", ["docker", "exec", "c", "rm"]))    [2, 3]: a command may begin there

The wrappers that simply put their words in front of a command are in search.py. What is missed here is found
nowhere, so it is wide: a word too many asks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from parley.permissions.shell.ast import names

# Subcommands behind which a command may begin at any word.
SUBRUNNERS = {
    **dict.fromkeys(
        names("docker podman nerdctl kubectl oc docker-compose lxc incus multipass nomad"),
        names("exec run create unshare ssh --entrypoint debug --"),
    ),
    **dict.fromkeys(names("npm pnpm yarn bun npx bunx pipx"), names("exec x dlx explore -c --call")),
    **dict.fromkeys(
        names(
            "uv poetry pipenv bundle conda mamba micromamba hatch pdm rye direnv mise asdf rbenv pyenv nodenv nvm fnm "
            "volta pixi dotenv op doppler aws-vault chamber sops teller infisical rustup flatpak toolbox devbox "
            "distrobox snap guix nix opam stack cabal"
        ),
        names("run exec exec-env exec-file x shell develop env -c -e -- --command enter"),
    ),
    **dict.fromkeys(names("perf"), names("stat record trace ftrace")),
    **dict.fromkeys(names("trace-cmd rr coverage"), names("record run")),
    "git": names("run foreach instaweb web--browse"),
    **dict.fromkeys(names("gh gcloud aws az"), names("ssh --command --")),
    "cargo": names("watch"),
    **dict.fromkeys(
        names("heroku fly flyctl railway vault buildah dvc"),
        names("run unshare ssh exec console -C -- --command stage"),
    ),
    "consul": names("lock watch exec"),
    "tox": names("exec"),
    "just": names("-c --command --shell --chooser"),
    "go": names("-exec -toolexec"),
    "rg": names("--pre --hostname-bin"),
    **dict.fromkeys(names("fd fdfind"), names("-x -X --exec --exec-batch")),
    "cmake": names("-E"),
    "ctest": names("--test-command --build-and-test"),
    "ip": names("exec"),
    "machinectl": names("shell"),
    "launchctl": names("submit --"),
    "vagrant": names("ssh -c --command"),
    "adb": names("shell"),
    "wsl": names("-e --exec --"),
    **dict.fromkeys(names("i3-msg swaymsg hyprctl xdotool"), names("exec")),
    "tmux": names(
        "new new-session neww new-window splitw split-window respawn-pane respawnp respawn-window respawnw run "
        "run-shell if if-shell popup display-popup pipe-pane pipep send send-keys set set-option bind bind-key "
        "set-hook confirm confirm-before command-prompt menu display-menu"
    ),
}
# Programs behind which a command may begin at any word.
ANYWHERE = re.compile(
    r"ld-(?:linux|musl).*|ld\.so.*|chrt|capsh|bwrap|firejail|proot|valgrind|ltrace|xvfb-run|dbus-run-session|cgexec|"
    r"qemu-\w+(?:-static)?|s6-[\w-]+|hyperfine|uftrace|onchange|busybox|toybox|ansible|salt|pdsh|pssh|parallel-ssh|clush|dsh|fab"
)
# Programs that give another one a new name.
RENAMERS = names("cp mv ln install hash cat dd rsync")
PROGRAM = re.compile(r"(?:if=)?/(?:[^/]+/)*s?bin/[^/]+")
FOUND_PROGRAM = re.compile(r"(?:\bwhich|\bcommand +-v|\btype +-[pP])[ \"']+([\w.-]+)")
# Programs whose words are text for a shell, if there is a blank in them.
TEXTS = names(
    "su runuser script watch parallel flock env xargs ssh tmux screen hyperfine nix-shell mapfile readarray complete "
    "bind entr rsync sg chronic at tsp pwsh powershell capsh man compgen mosh autossh sshpass bpftrace fzf sk pee "
    "mispipe concurrently watchexec nodemon reflex onchange chokidar ansible salt pdsh pssh parallel-ssh clush dsh fab "
    "vagrant adb sops dtach abduco xterm urxvt rxvt alacritty kitty foot konsole gnome-terminal xfce4-terminal "
    "i3-msg swaymsg hyprctl scriptlive socat ncat nc netcat scp sftp"
)
# Options whose value is a command, or a text for a shell. A long one may be shortened.
OPTIONS = {
    **dict.fromkeys(
        names("tar bsdtar gtar star"),
        names(
            "-I -F --use-compress-program --to-command --checkpoint-action --info-script --new-volume-script "
            "--rsh-command --rmt-command"
        ),
    ),
    **dict.fromkeys(names("sdiff diff3"), names("--diff-program")),
    "strace": names("-o --output"),
    **dict.fromkeys(names("iptables ip6tables"), names("--modprobe")),
    "hyperfine": names("--prepare --setup --cleanup --shell --conclude"),
    "pip": names("--python --editor"),
    "env": names("-S --split-string"),
    "fc": names("-e"),
    "npm": names("--call --script-shell --editor --viewer"),
    "cargo": names("-s --shell"),
    "helm": names("--post-renderer"),
    "go": names("-vettool"),
    "mail": names("-E --exec"),
    **dict.fromkeys(names("dpkg-buildpackage debuild"), names("-r -p --root-command --sign-command --check-command")),
    "debugfs": names("-R"),
    "cpio": names("--rsh-command"),
    "rsync": names("-e --rsh --rsync-path"),
    **dict.fromkeys(names("scp sftp"), names("-S -D -s")),
    "install": names("--strip-program"),
    "split": names("--filter"),
    "sort": names("--compress-program"),
    "zip": names("-TT --unzip-command"),
    "man": names("-P -H --pager --html"),
    "wget": names("--use-askpass"),
    "tcpdump": names("-z"),
    "nano": names("-s --speller"),
    **dict.fromkeys(names("ncat nc netcat"), names("-e -c --exec --sh-exec --lua-exec")),
    **dict.fromkeys(names("compgen complete mapfile readarray"), names("-C")),
    "script": names("-c --command"),
    "svn": names("--diff-cmd --diff3-cmd --editor-cmd"),
    "dpkg": names("--pre-invoke --post-invoke --status-logger"),
    **dict.fromkeys(names("rpm rpmbuild"), names("--pipe")),
    **dict.fromkeys(names("ag ack bat batcat delta"), names("--pager")),
    "bpftrace": names("-c"),
    **dict.fromkeys(names("agetty getty"), names("-l --login-program")),
    **dict.fromkeys(names("gpg gpg2"), names("--photo-viewer --agent-program --dirmngr-program --pinentry-program")),
    "git": names(
        "-x --exec --extcmd --upload-pack --receive-pack -u --sendmail-cmd --to-cmd --cc-cmd --header-cmd "
        "--smtp-server --access-hook --httpd --browser --open-files-in-pager --tree-filter --index-filter --env-filter "
        "--msg-filter --parent-filter --commit-filter --tag-name-filter --setup"
    ),
    **dict.fromkeys(names("fzf sk"), names("--preview --bind")),
    "make": names("-E --eval"),
    "start-stop-daemon": names("-x -a --exec --startas"),
    "flatpak": names("--command"),
    **dict.fromkeys(names("gcc g++ cc c++ cpp clang clang++"), names("-wrapper --wrapper")),
}
# Builtins that evaluate subscripts: `test -v 'a[$(id)]'` runs id.
SUBSCRIPTS = names(
    "printf test [ [[ let read declare typeset local export readonly unset getopts wait mapfile readarray compgen "
    "complete env"
)
INTERPRETERS = re.compile(
    r"(?:python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|g?awk|mawk|nawk|tclsh|wish|osascript|emacs|R|Rscript|"
    r"julia|octave|octave-cli|scala|groovy|jshell|ocaml|ghc|ghci|sbcl|guile|racket|clisp|elixir|iex|erl|crystal|dart|"
    r"raku|swift|irb|pry|nmap|gnuplot|mongosh|mongo|ipython|jython|rake|gjs|qjs|maxima)[\d.]*"
)
EDITORS = names(
    "vi vim nvim view ex ed emacs less more man gdb rvim vimdiff dc mail mailx ftp sftp telnet tftp lftp mysql mariadb "
    "psql gnuplot ghci mutt red"
)
QUOTED = re.compile(
    r"\"([^\"]*)\"|'([^']*)'|`([^`]*)`|(?:\bq[xwq]?|%[xwqQ])\s*"
    r"(?:\(([^)]{0,80})\)|\{([^}]{0,80})\}|\[([^]]{0,80})\]|[/|!]([^/|!]{0,80})[/|!])"
)
"""With the quotes of Perl and Ruby: `qx{rm x}`, `%x(rm x)`."""
SUBSTITUTION = re.compile(r"\$\(|`")
# `--rsh=sh`, `ProxyCommand=sh`, `alias.x=!sh`, `--checkpoint-action=exec=sh`, `APT::Update::Pre-Invoke::=sh`.
LONGEST_KEY = 64
KEY = re.compile(
    r"(?i)[\w.:/-]*(?:exec|command|cmd|rsh|rsync-path|prog|program|executable|hook|helper|pager|pager\.[\w-]+|editor|visual|askpass|browser|"
    r"opener|viewer|alias\.[\w-]+|fsmonitor|diff|external|textconv|filter|filter\.[\w.-]+|driver|shell|_ssh|lessopen|"
    r"lessclose|launcher|wrapper|runner|linker|invoke|invoke::|logger|ps[0124]|fcedit|upload-?pack|receive-?pack|"
    r"entrypoint|tar_options|makeflags|eval|gitproxy|tunnel|httpd|smtpserver|vcs|split-string|(?:tool|man|browser)\.[\w-]+\.path|"
    r"on(?:outofmemory)?error|exec(?:start|stop|reload|condition)\w*|success::|pkgs::|dir::bin::[\w-]+|"
    r"proxy-?auto-?detect|lessedit|less|more|wrap|call|cc|cxx|rustc|rustdoc|post-renderer)"
)
ALIAS = re.compile(r"(?i)alias\.")
PAGERS = names("zless xzless bzless zmore xzmore")
PLAIN_SHELL = re.compile(r"(?:/usr)?(?:/bin/)?(?:ba|da|z|k|fi)?sh")
# Variables with code in them, or with the name of a file with code in it, for whatever runs next.
LOADS_CODE = re.compile(
    r"(?:BASH_ENV|LD_PRELOAD|LD_AUDIT|PYTHONSTARTUP|PERL5OPT|PERL5DB|RUBYOPT|BASH_FUNC_\w+%%|GIT_CONFIG_(?:COUNT|GLOBAL|"
    r"SYSTEM|PARAMETERS)|GIT_EXEC_PATH)=.|ENV=.*[/$]|NODE_OPTIONS=.*(?:require|import|loader)"
)
LOADS_UNKNOWN_CODE = re.compile(rf"(?!ENV=)(?:{LOADS_CODE.pattern})|ENV=.*<\(")
FUNCTION = re.compile(r"BASH_FUNC_\w+%%=\(\) *(\{.*)", re.DOTALL)
# `ProxyCommand rm x` as one word, and what ssh calls its other commands.
SSH_OPTION = re.compile(r"(?i)(?:-o)?\s*(?:proxy|local|remote|knownhosts)command[\s=]+(.+)", re.DOTALL)
SOCKET = re.compile(r"(?i)(?:EXEC|SYSTEM|SHELL):([^,]+)")
# How ghostscript, TeX and rpm call a shell within their words.
PIPED = re.compile(r"gs|(?:pdf|xe|lua)?(?:la)?tex|rpm|rpmbuild|magick|convert")
PIPES = re.compile(r"(?:%pipe%|\|)\s*(.+)|\\write18\{([^}]*)\}|%\(([^)]*)\)", re.DOTALL)
SED_RUN = re.compile(r"(?:^|[;/{}\sIM!])e\s+(.+)|[\d$!]e\s*(.+)", re.DOTALL)
# `s/a/b/e` runs what it has made of a line.
SED_RUN_MADE = re.compile(r"([^\w\s])[gpiIMm\d]*e[gpiIMm\d]*$")
# `e` alone, and `s/a/b/e`: what is in the lines is not known.
SED_COMMAND = re.compile(r"\s*(?:[\d,$!]|/[^/]*/[IM]?)*\s*(?:(e)\s*$|s([^\w\s]))")
AWK = names("awk gawk mawk nawk original-awk")
# `system($0)`, `print | x`, `x | getline`: what runs is not in the program.
AWK_RUNS_VALUES = re.compile(r"\bsystem\s*\(\s*[^\s\")]|[\w$)\]]\s*\|&?\s*getline|(?<!\|)\|&?\s*(?!getline)[A-Za-z_$(]")
AWK_TEXT = re.compile(r"/(?:\\.|[^/\\\n])*/|\"(?:\\.|[^\"\\])*\"")
# What vim runs without a `!`.
VIM_RUN = re.compile(r"\bterm(?:inal)?!?\s+(?:\+\+\S+\s+)*(.+)|\b\w*(?:prg|shell|mp|gp|ep|fp|kp)=((?:\\.|[^\s\\|])+)")
TMUX_RUN = re.compile(r"#\(([^)]{0,100})\)")
OLD_TAR = re.compile(r"[A-Za-z]*[IF][A-Za-z]*")
# What debuggers, databases and the like call a shell by, within their own languages.
SPOKEN = re.compile(
    r"(?:^|[\s;{])(?:\.?(?:shell|system|spawn|exec|exec-wrapper)\s+(?:-\w+\s+)*|\\!\s*)(.+)|^\s*\.?(?:sh|sys)\w*\s+(.+)|"
    r"^\s*(?:\.o\w*\s|\.imp\w*\s|pipe\s|target\s|\|)[^|]*\|\s*[\"']?(.+)",
    re.DOTALL,
)
CALLS_LANGUAGES = names("gdb lldb expect vi vim nvim view ex vimdiff tmux mutt gimp")
"""They run code in other languages, with the command within quotes."""
SPEAKERS = names("gdb lldb sqlite3 expect mysql mariadb psql maxima gnuplot")
CODE_FLAGS = names(
    "-f -x -S -u -P -s -F -b -batch -init --file --makefile --justfile --batch --init-file --rcfile --source -c"
)
CODE_LOADERS = SPEAKERS | EDITORS | names("cmake ctest just ninja ssh scp sftp ip screen tmux deno")
MAKEFILE_IS_INPUT = re.compile(
    r"(?:-f|--file|--makefile) (?:-|/dev/stdin|/dev/fd/0)|.* (?:-f|--\w*file=)(?:-|/dev/stdin|/dev/fd/0)"
)
READS_INPUT = names("at batch crontab")
CRON_LINE = re.compile(r"^[ \t]*(?:@\w+|(?:[\d*/,-]+[ \t]+){4}[\w*/,-]+)[ \t]+(.+)", re.MULTILINE)
# Programs that put what they read into a command.
FILLERS = names("xargs parallel rush")
FILLED = re.compile(r"-[a-zA-Z0-9]*?[IiJ](.*)|--replace(?:=(.*))?")
FILLER_VALUE = re.compile(
    r"-[a-zA-Z0-9]*[InPdaLsEJjNS]|--(?:arg-file|delimiter|max-args|max-procs|max-lines|max-chars|jobs|sshlogin|colsep|"
    r"joblog|results|timeout|delay|eof)"
)
# What has its command, or its text, in the words that are put behind it.
OPEN_ENDED = re.compile(
    r"(?:.*/)?(?:(?:ba|da|z|k|a)?sh|env|sudo|doas|nice|nohup|time|timeout|command|exec|eval|setsid|stdbuf|xargs|ionice|chrt|"
    r"choom|busybox)"
)
CLUSTER = re.compile(r"-[A-Za-z]{0,6}")
HAS_PROGRAM = re.compile(r"-\w*[cemrpEf]|--(?:eval|execute|print|version|help|file|command)(?:=.*)?|[^-].*")


def texts(name: str, literal: Sequence[str]) -> Iterator[str]:
    """Words, and parts of words, that some shell may read."""
    return iter(dict.fromkeys(filter(None, _texts(name, literal))))


def _texts(name: str, literal: Sequence[str]) -> Iterator[str]:
    rest = literal[1:]
    yield from (value for word in rest if "=" in word for value in _named(word))
    yield from _values(OPTIONS.get(name, frozenset()), rest)
    if name in TEXTS:
        yield from (found[1] for word in rest if (found := SSH_OPTION.fullmatch(word)))
        yield from (word for word in rest if " " in word)
        yield from (found[1] for word in rest for found in SOCKET.finditer(word))
    if name in SUBSCRIPTS or not name:
        yield from (word for word in rest if SUBSTITUTION.search(word))
        yield from (found[1] for word in rest if (found := FUNCTION.match(word)))
    if INTERPRETERS.fullmatch(name):
        yield from ("".join(quoted.groups("")) for word in rest for quoted in QUOTED.finditer(word))
    if name in EDITORS or name in PAGERS:
        yield from (word.rpartition("!")[2] for word in rest if "!" in word)
        yield from (word[3:] for word in rest if word.startswith("+|"))
    if name in CALLS_LANGUAGES:
        yield from ("".join(quoted.groups("")) for word in rest for quoted in QUOTED.finditer(word))
        runs = [found for word in rest for found in VIM_RUN.finditer(word)]
        yield from ("".join(found.groups("")).replace("\\ ", " ") for found in runs)
    if name == "tmux":
        yield from (found[1] for word in rest for found in TMUX_RUN.finditer(word))
    if "tar" in name and rest and OLD_TAR.fullmatch(rest[0]):
        yield from rest[1:]
    if name == "gh":
        yield from (word[1:] for word in rest if word.startswith("!"))
        yield from (word for word in rest[3:] if rest[1] == "set")
    if name == "bind":
        yield from (word.rpartition(":")[2] for word in rest)
    if name == "git":
        yield from (word for flag, word in pairwise(rest) if flag == "foreach")
        yield from (word[2:] for word in rest if word.startswith("-O") and word[2:])
        yield from (word.partition("ext::")[2] for word in rest if "ext::" in word)
        if "shell" in rest:
            yield from (word for word in rest if " " in word)
        if rest and rest[0] == "for-each-repo":
            yield from ("git " + " ".join(rest[place + 1 :]) for place in range(len(rest)))
        if "config" in rest:
            yield from (value for pair in pairwise(rest) for value in _named("=".join(pair)))
    if name == "sed":
        yield from (found[1] or found[2] for word in rest if (found := SED_RUN.search(word)))
        made = ((word, found[1]) for word in rest if (found := SED_RUN_MADE.search(word)))
        yield from (piece for word, cut in made for piece in word.split(cut) if " " in piece)
    if name in SPEAKERS:
        yield from ("".join(found.groups("")) for word in rest if (found := SPOKEN.search(word)))
    if PIPED.fullmatch(name):
        yield from ("".join(found.groups("")) for word in rest for found in PIPES.finditer(word))


def _named(word: str) -> Iterator[str]:
    """The value of `key=value` if the key says that it is a command; of `a=key=value` as well."""
    key, _, value = word.partition("=")
    inner, equals, last = value.partition("=")
    if value.startswith("!") or key.lower() in ("less", "more"):
        yield value.rpartition("!")[2]
    if ALIAS.match(key) and not value.startswith("!"):
        yield f"git {value}"
    if len(key) <= LONGEST_KEY and KEY.fullmatch(key) and not PLAIN_SHELL.fullmatch(value):
        yield value.removeprefix("!").removeprefix("exec=")
    if equals and len(inner) <= LONGEST_KEY and KEY.fullmatch(inner):
        yield last.removeprefix("!").removeprefix("exec=")


def _values(options: frozenset[str], rest: Sequence[str]) -> Iterator[str]:
    """The values of these options, behind them or in the same word, however they are spelled."""
    if not options:
        return
    for word, following in pairwise((*rest, "")):
        if word[:2] == "--":
            option, equals, value = word.partition("=")
            if len(option) > 3 and any(known.startswith(option) for known in options):
                yield (value if equals else following).lstrip("|!").removeprefix("exec=")
        elif word[:1] == "-":
            for known in options:
                before, letter, value = word.partition(known[1:])
                if known[:2] != "--" and letter and CLUSTER.fullmatch(before):
                    text = (value or following).lstrip("|!")
                    yield from (text, text.replace(",", " "))


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


def renamed(name: str, spelled: Sequence[str]) -> Iterator[str]:
    """Programs that are found by name and then copied: `cp $(which rm) x`."""
    if name in RENAMERS:
        yield from (found[1] for word in spelled[1:] for found in FOUND_PROGRAM.finditer(word))
        yield from (word[3:] for word in spelled[1:] if word.startswith("if=/"))


def runs_what_it_reads(name: str, literal: Sequence[str]) -> bool:
    """Whether what a program reads may become the command that it runs: `xargs -I{} {} x`, `xargs sh -c`."""
    if name == "sed":
        operands = (word for flag, word in pairwise(literal) if word[:1] != "-" and flag not in ("-f", "--file"))
        return _runs_lines(next(operands, ""))
    if name in AWK:
        return any(AWK_RUNS_VALUES.search(AWK_TEXT.sub('""', word)) for word in literal[1:])
    if name in ("fd", "fdfind"):
        return any(flag in SUBRUNNERS[name] and "{}" in word for flag, word in pairwise(literal))
    if name not in FILLERS:
        return False
    marks = [] if name == "xargs" else ["{}"]
    begin = 1
    while begin < len(literal) and literal[begin][:1] == "-":
        if found := FILLED.fullmatch(literal[begin]):
            marks += [found[1] or found[2] or next(iter(literal[begin + 1 :]), "{}"), "{}"]
        begin += 2 if FILLER_VALUE.fullmatch(literal[begin]) else 1
    return _is_filled(literal[begin:], marks, name == "xargs")


def _runs_lines(script: str) -> bool:
    for piece in re.split(r"[;{}\n]", script):
        if (found := SED_COMMAND.match(piece)) and (found[1] or "e" in "".join(piece.split(found[2])[-1:])[:8]):
            return found[1] is not None or len(piece[found.end() :].split(found[2])) == 3
    return False


def _is_filled(words: Sequence[str], marks: Sequence[str], appends: bool) -> bool:
    """Whether the command's name, or the text of a shell, is among what is filled in."""
    if not words:
        return False
    last = next((place for place in range(len(words)) if not OPEN_ENDED.fullmatch(words[place])), len(words))
    runs_text = last > 0 and any("c" in word and CLUSTER.fullmatch(word) for word in words[last:])
    behind = [word for word in words[last:] if word[:1] != "-"]
    if last > 0 and not marks and appends and not behind:
        return True
    held = behind if runs_text else behind[:1]
    return any(mark in word for mark in marks if mark for word in (*words[:1], *held))


def reads_code(name: str, spelled: Sequence[str]) -> bool:
    """Whether a program takes its code from a substitution or its input: `make -f -`, `vim -S <(...)`."""
    if name != "make" and name not in CODE_LOADERS and not INTERPRETERS.fullmatch(name):
        return False
    for flag, word in pairwise(spelled):
        if word.startswith("<(") and (flag in CODE_FLAGS or (flag == spelled[0] and name not in AWK)):
            return True
        if "=<(" in word or (name == "make" and MAKEFILE_IS_INPUT.fullmatch(f"{flag} {word}")):
            return True
    return False


def is_fed(words: Sequence[str | None]) -> bool:
    """Whether this is an interpreter that takes its program from a pipe or a here-document."""
    name = (words[0] or "").rpartition("/")[2] if words else ""
    if not (INTERPRETERS.fullmatch(name) or name in SPEAKERS or name in EDITORS):
        return False
    if name in SPEAKERS or name in EDITORS:
        return True
    return not any(word is None or HAS_PROGRAM.fullmatch(word) for word in words[1:])


def spoken(program: str) -> Iterator[str]:
    """What a program for an interpreter may hand to a shell."""
    yield from ("".join(found.groups("")) for found in QUOTED.finditer(program))
    for line in program.splitlines():
        yield from ("".join(found.groups("")) for found in [SPOKEN.search(line)] if found)
        yield from (line.rpartition("!")[2] for _ in range(line.startswith(("!", "~!", ":!"))))
