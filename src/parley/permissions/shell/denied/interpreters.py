"""Programs that run what their words hold, in ways of their own. Only for finding denies.

    list(find_shell_texts("ssh", ["ssh", "host", "rm x"]))              ["rm x"]: a shell will read it
    list(find_command_positions("docker", ["docker", "exec", "c", "rm"]))    [2, 3]: a command may begin there

The wrappers that simply put their words in front of a command are in search.py. What is missed here is found
nowhere, so it is wide: a word too many asks.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from parley.permissions.shell.ast import word_set

# Subcommands behind which a command may begin at any word.
SUBRUNNERS = {
    **dict.fromkeys(
        word_set("docker podman nerdctl kubectl oc docker-compose lxc incus multipass nomad"),
        word_set("exec run create unshare ssh --entrypoint debug --"),
    ),
    **dict.fromkeys(word_set("npm pnpm yarn bun npx bunx pipx"), word_set("exec x dlx explore -c --call")),
    **dict.fromkeys(
        word_set(
            "uv poetry pipenv bundle conda mamba micromamba hatch pdm rye direnv mise asdf rbenv pyenv nodenv nvm fnm "
            "volta pixi dotenv op doppler aws-vault chamber sops teller infisical rustup flatpak toolbox devbox "
            "distrobox snap guix nix opam stack cabal"
        ),
        word_set("run exec exec-env exec-file x shell develop env -c -e -- --command enter"),
    ),
    **dict.fromkeys(word_set("perf"), word_set("stat record trace ftrace")),
    **dict.fromkeys(word_set("trace-cmd rr coverage"), word_set("record run")),
    "git": word_set("run foreach instaweb web--browse merge-index remote-ext"),
    **dict.fromkeys(word_set("gh gcloud aws az"), word_set("ssh --command --")),
    "cargo": word_set("watch"),
    **dict.fromkeys(
        word_set("heroku fly flyctl railway vault buildah dvc"),
        word_set("run unshare ssh exec console -C -- --command stage"),
    ),
    "consul": word_set("lock watch exec"),
    "tox": word_set("exec"),
    "just": word_set("-c --command --shell --chooser"),
    "go": word_set("-exec -toolexec"),
    "rg": word_set("--pre --hostname-bin"),
    **dict.fromkeys(word_set("fd fdfind"), word_set("-x -X --exec --exec-batch")),
    "cmake": word_set("-E"),
    "ctest": word_set("--test-command --build-and-test"),
    "ip": word_set("exec"),
    "machinectl": word_set("shell"),
    "launchctl": word_set("submit --"),
    "vagrant": word_set("ssh -c --command"),
    "adb": word_set("shell"),
    "wsl": word_set("-e --exec --"),
    **dict.fromkeys(word_set("i3-msg swaymsg hyprctl xdotool"), word_set("exec")),
    "tmux": word_set(
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
COPYING_PROGRAMS = word_set("cp mv ln install hash cat dd rsync")
PROGRAM = re.compile(r"(?:if=)?/(?:[^/]+/)*s?bin/[^/]+")
FOUND_PROGRAM = re.compile(r"(?:\bwhich|\bcommand +-v|\btype +-[pP])[ \"']+([\w.-]+)")
# Programs whose words are text for a shell, if there is a blank in them.
TEXTS = word_set(
    "su runuser script watch parallel flock env xargs ssh tmux screen hyperfine nix-shell mapfile readarray complete "
    "bind entr rsync sg chronic at tsp pwsh powershell capsh man compgen mosh autossh sshpass bpftrace fzf sk pee "
    "mispipe concurrently watchexec nodemon reflex onchange chokidar ansible salt pdsh pssh parallel-ssh clush dsh fab "
    "vagrant adb sops dtach abduco xterm urxvt rxvt alacritty kitty foot konsole gnome-terminal xfce4-terminal "
    "i3-msg swaymsg hyprctl scriptlive socat ncat nc netcat scp sftp ssh-copy-id"
)
# Options whose value is a command, or a text for a shell. A long one may be shortened.
OPTIONS = {
    **dict.fromkeys(
        word_set("tar bsdtar gtar star"),
        word_set(
            "-I -F --use-compress-program --to-command --checkpoint-action --info-script --new-volume-script "
            "--rsh-command --rmt-command"
        ),
    ),
    **dict.fromkeys(word_set("sdiff diff3"), word_set("--diff-program")),
    "strace": word_set("-o --output"),
    "rg": word_set("--pre --hostname-bin"),
    **dict.fromkeys(word_set("fd fdfind"), word_set("--exec --exec-batch")),
    "cvs": word_set("-e"),
    "ld": word_set("--error-handling-script"),
    "meson": word_set("--wrapper --gdb-path"),
    "proot": word_set("-q --qemu"),
    "pandoc": word_set("-F --filter --pdf-engine"),
    "mosh": word_set("--ssh --server --client"),
    "xetex": word_set("-output-driver"),
    "dbus-run-session": word_set("--dbus-daemon"),
    **dict.fromkeys(word_set("iptables ip6tables"), word_set("--modprobe")),
    "hyperfine": word_set("--prepare --setup --cleanup --shell --conclude"),
    "pip": word_set("--python --editor"),
    "env": word_set("-S --split-string"),
    "fc": word_set("-e"),
    "npm": word_set("--call --script-shell --editor --viewer"),
    "cargo": word_set("-s --shell"),
    "helm": word_set("--post-renderer"),
    "go": word_set("-vettool"),
    "mail": word_set("-E --exec"),
    **dict.fromkeys(
        word_set("dpkg-buildpackage debuild"),
        word_set("-r -p -R --root-command --rootcmd --sign-command --check-command --rules-file"),
    ),
    "debugfs": word_set("-R"),
    "cpio": word_set("--rsh-command"),
    "rsync": word_set("-e --rsh --rsync-path"),
    **dict.fromkeys(word_set("scp sftp"), word_set("-S -D -s")),
    "install": word_set("--strip-program"),
    "split": word_set("--filter"),
    "sort": word_set("--compress-program"),
    "zip": word_set("-TT --unzip-command"),
    "man": word_set("-P -H --pager --html"),
    "wget": word_set("--use-askpass"),
    "tcpdump": word_set("-z"),
    "nano": word_set("-s --speller"),
    **dict.fromkeys(word_set("ncat nc netcat"), word_set("-e -c --exec --sh-exec --lua-exec")),
    **dict.fromkeys(word_set("compgen complete mapfile readarray"), word_set("-C")),
    "script": word_set("-c --command"),
    "svn": word_set("--diff-cmd --diff3-cmd --editor-cmd"),
    "dpkg": word_set("--pre-invoke --post-invoke --status-logger"),
    **dict.fromkeys(word_set("rpm rpmbuild"), word_set("--pipe")),
    **dict.fromkeys(word_set("ag ack bat batcat delta"), word_set("--pager")),
    "bpftrace": word_set("-c"),
    **dict.fromkeys(word_set("agetty getty"), word_set("-l --login-program")),
    **dict.fromkeys(
        word_set("gpg gpg2"), word_set("--photo-viewer --agent-program --dirmngr-program --pinentry-program")
    ),
    "git": word_set(
        "-x --exec --extcmd --upload-pack --receive-pack -u --sendmail-cmd --to-cmd --cc-cmd --header-cmd "
        "--smtp-server --access-hook --httpd --browser --open-files-in-pager --tree-filter --index-filter --env-filter "
        "--msg-filter --parent-filter --commit-filter --tag-name-filter --setup --program"
    ),
    **dict.fromkeys(word_set("fzf sk"), word_set("--preview --bind")),
    "make": word_set("-E --eval"),
    "start-stop-daemon": word_set("-x -a --exec --startas"),
    "flatpak": word_set("--command"),
    **dict.fromkeys(word_set("gcc g++ cc c++ cpp clang clang++"), word_set("-wrapper --wrapper")),
}
# Builtins that evaluate subscripts: `test -v 'a[$(id)]'` runs id.
SUBSCRIPTS = word_set(
    "printf test [ [[ let read declare typeset local export readonly unset getopts wait mapfile readarray compgen "
    "complete env"
)
INTERPRETERS = re.compile(
    r"(?:python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|g?awk|mawk|nawk|tclsh|wish|osascript|emacs|R|Rscript|"
    r"julia|octave|octave-cli|scala|groovy|jshell|ocaml|ghc|ghci|sbcl|guile|racket|clisp|elixir|iex|erl|crystal|dart|"
    r"raku|swift|irb|pry|nmap|gnuplot|mongosh|mongo|ipython|jython|rake|gjs|qjs|maxima)[\d.]*"
)
EDITORS = word_set(
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
COMMAND_OPTION = re.compile(
    r"--(?!no-)[\w-]*(?:command|cmd|program|executable|helper|editor|viewer|askpass|wrapper|exec|shell|hook|pager|browser)"
)
MAX_KEY_CHARACTERS = 64
MOST_OPTIONS = 8
KEY = re.compile(
    r"(?i)[\w.:/,-]*(?:exec|command|cmd|rsh|rsync-path|prog|program|executable|hook|helper|pager|pager\.[\w-]+|editor|visual|askpass|browser|"
    r"opener|viewer|alias\.[\w-]+|fsmonitor|diff|external|textconv|filter|filter\.[\w.-]+|driver|shell|_ssh|lessopen|"
    r"lessclose|launcher|wrapper|runner|linker|invoke|invoke::|logger|ps[0124]|fcedit|upload-?pack|receive-?pack|"
    r"entrypoint|tar_options|makeflags|eval|gitproxy|tunnel|httpd|smtpserver|vcs|split-string|(?:tool|man|browser)\.[\w-]+\.path|"
    r"on(?:outofmemory)?error|exec(?:start|stop|reload|condition)\w*|success::|pkgs::|dir::bin::[\w-]+|"
    r"proxy-?auto-?detect|lessedit|less|more|wrap|call|cc|cxx|rustc|rustdoc|post-renderer|error-handling-script|"
    r"hook-[\w-]+|_interpreter|rsync_ssl_\w+|ts_env|ts_onfinish|mail_reader|ssh_remote_display|autossh_path|ccache_prefix\w*|sendmail|(?:customtransfer|extension)\.[\w-]+\.\w+)"
)
# What the built-in rules of make run, and scripts that configure a build.
TOOLS = word_set(
    "AR AS CC CO CPP CTANGLE CWEAVE CXX F77 FC GET INSTALL LD LEX LINT M2C MAKE MAKEINFO NM OBJC OBJCOPY OBJDUMP "
    "OPENSSL PC RANLIB RM STRIP TANGLE TAR TEX TEXI2DVI WEAVE YACC"
)
MAKES = word_set("make gmake bmake pmake nmake scons waf")
# Variables with options for a program.
OPTION_VARIABLES = {
    "MANOPT": "man",
    "TAR_OPTIONS": "tar",
    "FZF_DEFAULT_OPTS": "fzf",
    "SKIM_DEFAULT_OPTIONS": "sk",
    "GROFFER_OPT": "groffer",
    "MAKEFLAGS": "make",
    "GNUMAKEFLAGS": "make",
    "MFLAGS": "make",
    "ZIPOPT": "zip",
    "ZIP": "zip",
    "ACK_OPTIONS": "ack",
    "BAT_OPTS": "bat",
    "PARALLEL": "parallel",
    "WATCH_OPTIONS": "watch",
    "MANROFFOPT": "groff",
    "GS_OPTIONS": "gs",
    "PDSH_SSH_ARGS": "ssh",
    "PDSH_SSH_ARGS_APPEND": "ssh",
    "VIMINIT": "vim -c",
    "EXINIT": "vim -c",
    "GVIMINIT": "vim -c",
    "NPM_CONFIG_CALL": "npm exec -c",
    **dict.fromkeys(word_set("JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS"), "java"),
}
# Commands of git that do the work of others: `git lfs push`.
GIT_FRONTS = word_set("lfs subtree")
GIT_PLUMBING = {"send-pack": "push", "http-push": "push", "fetch-pack": "fetch", "http-fetch": "fetch"}
ENCODED = re.compile(r"(?i)[-/]e(?:c|nc?[a-z]*)?")
POWERSHELL = word_set("pwsh powershell pwsh-preview")
ALIAS = re.compile(r"(?i)alias\.")
PAGERS = word_set("zless xzless bzless zmore xzmore")
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
AWK = word_set("awk gawk mawk nawk original-awk")
# `system($0)`, `print | x`, `x | getline`: what runs is not in the program.
AWK_RUNS_VALUES = re.compile(r"\bsystem\s*\(\s*[^\s\")]|[\w$)\]]\s*\|&?\s*getline|(?<!\|)\|&?\s*(?!getline)[A-Za-z_$(]")
AWK_TEXT = re.compile(r"/(?:\\.|[^/\\\n])*/|\"(?:\\.|[^\"\\])*\"")
# What vim runs without a `!`.
VIM_RUN = re.compile(
    r"\bterm(?:inal)?!?\s+(?:\+\+\S+\s+)*(.+)|\b\w*(?:prg|shell|mp|gp|ep|fp|kp)=((?:\\.|[^\s\\|])+)|"
    r"\bset\s+(?:\w+_)?(?:editor|pager|sendmail|visual|ispell|command|cmd|tunnel|inews)\s*=\s*(.+)"
)
TMUX_RUN = re.compile(r"#\(([^)]{0,100})\)")
OLD_TAR = re.compile(r"[A-Za-z]*[IF][A-Za-z]*")
# What debuggers, databases and the like call a shell by, within their own languages.
SHELL_ESCAPE = re.compile(
    r"(?:^|[\s;{])(?:\.?(?:shell|system|spawn|exec|exec-wrapper)\s+(?:-\w+\s+)*|\\!\s*)(.+)|^\s*\.?(?:sh|sy)\w*\s+(.+)|"
    r"^[.']\s*(?:pso|pi)\s+(.+)|"
    r"^\s*(?:\.o\w*\s|\.imp\w*\s|pipe\s|target\s|\|)[^|]*\|\s*[\"']?(.+)",
    re.DOTALL,
)
CALLS_LANGUAGES = word_set("gdb lldb expect vi vim nvim view ex vimdiff tmux mutt gimp")
"""They run code in other languages, with the command within quotes."""
SHELL_ESCAPERS = word_set(
    "gdb lldb sqlite3 expect mysql mariadb psql maxima gnuplot groff troff nroff gtroff pdfroff groffer"
)
CODE_FLAGS = word_set(
    "-f -x -S -u -P -s -F -b -batch -init --file --makefile --justfile --batch --init-file --rcfile --source -c"
)
CODE_LOADERS = SHELL_ESCAPERS | EDITORS | word_set("cmake ctest just ninja ssh scp sftp ip screen tmux deno")
MAKEFILE_IS_INPUT = re.compile(
    r"(?:-f|--file|--makefile) (?:-|/dev/stdin|/dev/fd/0)|.* (?:-f|--\w*file=)(?:-|/dev/stdin|/dev/fd/0)"
)
READS_INPUT = word_set("at batch crontab")
CRON_LINE = re.compile(r"^[ \t]*(?:@\w+|(?:[\d*/,-]+[ \t]+){4}[\w*/,-]+)[ \t]+(.+)", re.MULTILINE)
# Programs that put what they read into a command.
FILLERS = word_set("xargs parallel rush")
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
SPECIAL = frozenset(
    {
        *TEXTS,
        *SUBSCRIPTS,
        *EDITORS,
        *PAGERS,
        *MAKES,
        *POWERSHELL,
        *CALLS_LANGUAGES,
        *SHELL_ESCAPERS,
        "",
        "gh",
        "git",
        "sed",
    }
)
"""The programs that `_special_texts` knows by name."""
HAS_PROGRAM = re.compile(r"-\w*[cemrpEf]|--(?:eval|execute|print|version|help|file|command)(?:=.*)?|[^-].*")


def find_shell_texts(name: str, literal: Sequence[str]) -> Iterator[str]:
    """Words, and parts of words, that some shell may read."""
    return iter(dict.fromkeys(filter(None, _iter_shell_texts(name, literal))))


@lru_cache(maxsize=512)
def _is_special(name: str) -> bool:
    """Whether more than the options of a program is to be looked at."""
    if name in SPECIAL or "tar" in name:
        return True
    return INTERPRETERS.fullmatch(name) is not None or PIPED.fullmatch(name) is not None


def _iter_shell_texts(name: str, literal: Sequence[str]) -> Iterator[str]:
    rest = literal[1:]
    yield from (value for word in rest if "=" in word for value in _command_values(word))
    yield from _option_values(OPTIONS.get(name, frozenset()), rest)
    for flag, word in pairwise(rest):
        if flag[:2] == "--" and COMMAND_OPTION.fullmatch(flag) and not PLAIN_SHELL.fullmatch(word):
            yield word
    if _is_special(name):
        yield from _special_texts(name, rest)


def _special_texts(name: str, rest: Sequence[str]) -> Iterator[str]:
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
    if name in MAKES:
        values = (word.partition("=")[2] for word in rest if "=" in word)
        yield from (value for value in values if not PLAIN_SHELL.fullmatch(value))
    if name in POWERSHELL:
        yield from (text for flag, word in pairwise(rest) if (text := _decoded(flag, word)))
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
            yield from ("git " + " ".join(rest[index + 1 :]) for index in range(len(rest)))
        if "config" in rest:
            yield from (value for pair in pairwise(rest) for value in _command_values("=".join(pair)))
    if name == "sed":
        yield from (found[1] or found[2] for word in rest if (found := SED_RUN.search(word)))
        substitutions = ((word, found[1]) for word in rest if (found := SED_RUN_MADE.search(word)))
        yield from (piece for word, cut in substitutions for piece in word.split(cut) if " " in piece)
    if name in SHELL_ESCAPERS:
        yield from ("".join(found.groups("")) for word in rest if (found := SHELL_ESCAPE.search(word)))
    if PIPED.fullmatch(name):
        yield from ("".join(found.groups("")) for word in rest for found in PIPES.finditer(word))


def _command_values(word: str) -> Iterator[str]:
    """The value of `key=value` if the key says that it is a command; of `a=key=value` as well."""
    key, _, value = word.partition("=")
    inner, equals, last = value.partition("=")
    if value.startswith("!") or key.lower() in ("less", "more"):
        yield value.rpartition("!")[2]
    if program := OPTION_VARIABLES.get(key):
        yield f"{program} {value}"
    if key in TOOLS:
        yield value
    if ALIAS.match(key) and not value.startswith("!"):
        yield f"git {value}"
    if len(key) <= MAX_KEY_CHARACTERS and KEY.fullmatch(key) and not PLAIN_SHELL.fullmatch(value):
        yield value.removeprefix("!").removeprefix("exec=")
    if equals and len(inner) <= MAX_KEY_CHARACTERS and KEY.fullmatch(inner):
        yield last.removeprefix("!").removeprefix("exec=")


def _option_values(options: frozenset[str], rest: Sequence[str]) -> Iterator[str]:
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


def _decoded(flag: str, word: str) -> str | None:
    """The text behind `pwsh -EncodedCommand`; None if there is none, or it cannot be read."""
    if not ENCODED.fullmatch(flag):
        return None
    try:
        return base64.b64decode(word, validate=True).decode("utf-16-le")
    except ValueError:
        return None


def other_names(literal: Sequence[str]) -> Iterator[str]:
    """Commands of git that do the same as the one that is given by its words, git first."""
    name, rest = "".join(literal[1:2]), literal[2:]
    if name in GIT_FRONTS:
        yield from (" ".join(["git", *rest[index:]]) for index in range(min(len(rest), MOST_OPTIONS)))
    if name in GIT_PLUMBING:
        yield " ".join(["git", GIT_PLUMBING[name], *rest])


def find_command_positions(name: str, literal: Sequence[str]) -> Iterator[int]:
    """Where a command may begin behind a subcommand that runs it."""
    if ANYWHERE.fullmatch(name):
        yield from range(1, len(literal))
    if name in COPYING_PROGRAMS:
        yield from (index for index, word in enumerate(literal) if index and PROGRAM.fullmatch(word))
    known = SUBRUNNERS.get(name)
    if known:
        begin = next((index for index, word in enumerate(literal) if index and word in known), len(literal))
        yield from range(begin + 1, len(literal))


def find_renamed_programs(name: str, raw_words: Sequence[str]) -> Iterator[str]:
    """Programs that are found by name and then copied: `cp $(which rm) x`."""
    if name in COPYING_PROGRAMS:
        yield from (found[1] for word in raw_words[1:] for found in FOUND_PROGRAM.finditer(word))
        yield from (word[3:] for word in raw_words[1:] if word.startswith("if=/"))


def runs_its_input(name: str, literal: Sequence[str]) -> bool:
    """Whether what a program reads may become the command that it runs: `xargs -I{} {} x`, `xargs sh -c`."""
    if name == "sed":
        operands = (word for flag, word in pairwise(literal) if word[:1] != "-" and flag not in ("-f", "--file"))
        return _runs_lines(next(operands, ""))
    if name in AWK:
        return any(AWK_RUNS_VALUES.search(AWK_TEXT.sub('""', word)) for word in literal[1:])
    if name in ("fd", "fdfind"):
        return any(flag in SUBRUNNERS[name] and "{}" in word for flag, word in pairwise(literal))
    if name in POWERSHELL:
        return any(ENCODED.fullmatch(flag) and _decoded(flag, word) is None for flag, word in pairwise(literal))
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
    last = next((index for index in range(len(words)) if not OPEN_ENDED.fullmatch(words[index])), len(words))
    runs_text = last > 0 and any("c" in word and CLUSTER.fullmatch(word) for word in words[last:])
    behind = [word for word in words[last:] if word[:1] != "-"]
    if last > 0 and not marks and appends and not behind:
        return True
    held = behind if runs_text else behind[:1]
    return any(mark in word for mark in marks if mark for word in (*words[:1], *held))


def reads_code(name: str, raw_words: Sequence[str]) -> bool:
    """Whether a program takes its code from a substitution or its input: `make -f -`, `vim -S <(...)`."""
    if name != "make" and name not in CODE_LOADERS and not INTERPRETERS.fullmatch(name):
        return False
    for flag, word in pairwise(raw_words):
        if word.startswith("<(") and (flag in CODE_FLAGS or (flag == raw_words[0] and name not in AWK)):
            return True
        if "=<(" in word or (name == "make" and MAKEFILE_IS_INPUT.fullmatch(f"{flag} {word}")):
            return True
    return False


def reads_program_from_input(words: Sequence[str | None]) -> bool:
    """Whether this is an interpreter that takes its program from a pipe or a here-document."""
    name = (words[0] or "").rpartition("/")[2] if words else ""
    if not (INTERPRETERS.fullmatch(name) or name in SHELL_ESCAPERS or name in EDITORS):
        return False
    if name in SHELL_ESCAPERS or name in EDITORS:
        return True
    return not any(word is None or HAS_PROGRAM.fullmatch(word) for word in words[1:])


def find_shell_escapes(program: str) -> Iterator[str]:
    """What a program for an interpreter may hand to a shell."""
    yield from ("".join(found.groups("")) for found in QUOTED.finditer(program))
    for line in program.splitlines():
        yield from ("".join(found.groups("")) for found in [SHELL_ESCAPE.search(line)] if found)
        yield from (line.rpartition("!")[2] for _ in range(line.startswith(("!", "~!", ":!"))))
