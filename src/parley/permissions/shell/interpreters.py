"""Programs that run their arguments in their own ways. Used only to find denied commands.

    list(find_shell_texts("ssh", ["ssh", "host", "rm x"]))                   ["rm x"]: a shell reads it
    list(find_command_positions("docker", ["docker", "exec", "c", "rm"]))    [2, 3]: a command may begin there

The wrappers that simply come before a command are in arguments.py. What is missed here is found nowhere else, so
the tables are wide: a false match costs a question.
"""

from __future__ import annotations

import base64
import posixpath
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from parley.permissions.base import word_set, word_table
from parley.permissions.shell.arguments import BUILDS, SERVICES
from parley.protocol.base import Struct

# Subcommands after which a command may begin at any word.
SUBRUNNERS = word_table(
    """
    docker podman nerdctl kubectl oc docker-compose lxc incus multipass nomad crictl ctr: exec run create unshare ssh
        rsh --entrypoint debug --
    npm pnpm yarn bun npx bunx: exec x dlx explore -c --call
    uv poetry pipenv bundle conda mamba micromamba hatch pdm rye direnv mise asdf rbenv pyenv nodenv nvm fnm volta pixi
        dotenv op doppler aws-vault chamber sops teller infisical rustup flatpak toolbox devbox distrobox snap guix nix
        opam stack cabal pipx pulumi: run exec exec-env exec-file x shell develop env -c -e -- --command enter
    perf: stat record trace ftrace
    trace-cmd rr coverage: record run
    git: run view visualize foreach instaweb web--browse merge-index remote-ext
    brew: exec sh
    gh gcloud aws az: ssh --command --
    cargo: watch
    heroku fly flyctl railway vault buildah dvc: run local:run unshare ssh exec console -C -- --command stage
    consul: lock watch exec
    tox: exec
    just: -c --command --shell --chooser
    go: -exec -toolexec
    rg: --pre --hostname-bin
    fd fdfind: -x -X --exec --exec-batch
    cmake: -E
    ctest: --test-command --build-and-test
    ip: exec
    machinectl: shell
    launchctl: submit --
    vagrant: ssh -c --command
    adb: shell
    wsl: -e --exec --
    i3-msg swaymsg hyprctl xdotool: exec
    tmux: new new-session neww new-window splitw split-window respawn-pane respawnp respawn-window respawnw run
        run-shell if if-shell popup display-popup pipe-pane pipep send send-keys set set-option bind bind-key set-hook
        confirm confirm-before command-prompt menu display-menu
    """
)
# In the arguments of a program without a row above, a command may begin after one of these.
RUNS_COMMAND = re.compile(r"(?:[\w-]+:)?(?:exec|dlx|rsh|ssh|cmd)|devenv")
# Programs after which a command may begin at any word.
ANYWHERE = re.compile(
    r"ld-(?:linux|musl).*|ld\.so.*|chrt|capsh|bwrap|firejail|proot|valgrind|ltrace|xvfb-run|dbus-run-session|cgexec|"
    r"qemu-\w+(?:-static)?|s6-[\w-]+|npx|bunx|hyperfine|uftrace|onchange|busybox|toybox|ansible|salt|pdsh|pssh|parallel-ssh|clush|dsh|fab"
)
# Programs that can copy or link another program under a new name.
COPYING_PROGRAMS = word_set("cp mv ln install hash cat dd rsync")
PROGRAM = re.compile(r"(?:if=)?/(?:[^/]+/)*s?bin/[^/]+")
FOUND_PROGRAM = re.compile(r"(?:\bwhich|\bcommand +-v|\btype +-[pP])[ \"']+([\w.-]+)")
# Programs whose arguments are shell scripts if they contain a blank.
TEXTS = word_set(
    "su runuser script watch parallel flock env xargs ssh tmux screen hyperfine nix-shell mapfile readarray complete "
    "bind entr rsync sg chronic at tsp pwsh powershell capsh man compgen mosh autossh sshpass bpftrace fzf sk pee "
    "mispipe concurrently watchexec nodemon reflex onchange chokidar ansible salt pdsh pssh parallel-ssh clush dsh fab "
    "vagrant adb sops dtach abduco xterm urxvt rxvt alacritty kitty foot konsole gnome-terminal xfce4-terminal "
    "i3-msg swaymsg hyprctl scriptlive socat ncat nc netcat scp sftp ssh-copy-id"
)
# Options whose value is a command or a shell script. Long ones may be abbreviated.
OPTIONS = word_table(
    """
    tar bsdtar gtar star: -I -F --use-compress-program --to-command --checkpoint-action --info-script
        --new-volume-script --rsh-command --rmt-command
    sdiff diff3: --diff-program
    strace: -o --output
    rg: --pre --hostname-bin
    fd fdfind: --exec --exec-batch
    cvs: -e
    ld: --error-handling-script
    meson: --wrapper --gdb-path
    proot: -q --qemu
    pandoc: -F --filter --pdf-engine
    mosh: --ssh --server --client
    xetex: -output-driver
    dbus-run-session: --dbus-daemon
    iptables ip6tables: --modprobe
    hyperfine: --prepare --setup --cleanup --shell --conclude
    pip: --python --editor
    env: -S --split-string
    fc: -e
    nix-shell: --run --command
    cdk: -a --app
    bazel bazelisk: --run_under
    az: --scripts
    npm: --call --script-shell --editor --viewer
    deno: --eval
    cargo: -s --shell
    helm: --post-renderer
    go: -vettool
    mail: -E --exec
    dpkg-buildpackage debuild: -r -p -R --root-command --rootcmd --sign-command --check-command --rules-file
    debugfs: -R
    cpio: --rsh-command
    rsync: -e --rsh --rsync-path
    scp sftp: -S -D -s
    install: --strip-program
    split: --filter
    sort: --compress-program
    zip: -TT --unzip-command
    man: -P -H --pager --html
    wget: -e --use-askpass --execute --config
    curl: -K --config
    ssh-keygen: -D -w
    ssh-add: -s -S
    tcpdump: -z
    nano: -s --speller
    ncat nc netcat: -e -c --exec --sh-exec --lua-exec
    compgen complete mapfile readarray: -C
    script: -c --command
    svn: --diff-cmd --diff3-cmd --editor-cmd
    dpkg: --pre-invoke --post-invoke --status-logger
    rpm rpmbuild: --pipe
    ag ack bat batcat delta: --pager
    bpftrace: -c
    agetty getty: -l --login-program
    gpg gpg2: --photo-viewer --agent-program --dirmngr-program --pinentry-program
    git: -x --exec --extcmd --upload-pack --receive-pack -u --sendmail-cmd --to-cmd --cc-cmd --header-cmd --smtp-server
        --access-hook --httpd --browser --open-files-in-pager --tree-filter --index-filter --env-filter --msg-filter
        --parent-filter --commit-filter --tag-name-filter --setup --program
    fzf sk: --preview --bind
    make: -E --eval
    start-stop-daemon: -x -a --exec --startas
    flatpak: --command
    gcc g++ cc c++ cpp clang clang++: -wrapper --wrapper -fplugin -specs --specs
    """
)
# Builtins that evaluate subscripts: `test -v 'a[$(id)]'` runs id.
SUBSCRIPTS = word_set(
    "printf test [ [[ let read declare typeset local export readonly unset getopts wait mapfile readarray compgen "
    "complete env"
)
INTERPRETERS = re.compile(
    r"(?:python|pypy|perl|ruby|node|nodejs|deno|bun|php|lua|luajit|g?awk|mawk|nawk|tclsh|wish|osascript|emacs|R|Rscript|"
    r"julia|octave|octave-cli|scala|groovy|jshell|ocaml|ghc|ghci|sbcl|guile|racket|clisp|elixir|iex|erl|crystal|dart|"
    r"raku|swift|irb|pry|mix|puppet|m4|nmap|gnuplot|mongosh|mongo|ipython|jython|rake|gjs|qjs|maxima|"
    r"tsx|ts-node|kotlin|jruby|bpython|pwsh|powershell)[\d.]*"
)
EDITORS = word_set(
    "vi vim nvim view ex ed emacs less more man gdb rvim vimdiff dc mail mailx ftp sftp telnet tftp lftp mysql mariadb "
    "psql gnuplot ghci mutt red"
)
QUOTED = re.compile(
    r"\"([^\"]*)\"|'([^']*)'|`([^`]*)`|(?:\bq[xwq]?|%[xwqQ])\s*"
    r"(?:\(([^)]{0,80})\)|\{([^}]{0,80})\}|\[([^]]{0,80})\]|[/|!]([^/|!]{0,80})[/|!])"
)
"""Quoted texts, also with the quotes of Perl and Ruby: `qx{rm x}`, `%x(rm x)`."""
SUBSTITUTION = re.compile(r"\$\(|`")
# `--rsh=sh`, `ProxyCommand=sh`, `alias.x=!sh`, `--checkpoint-action=exec=sh`, `APT::Update::Pre-Invoke::=sh`.
COMMAND_OPTION = re.compile(
    r"--(?!no-)[\w-]*(?:command|cmd|program|executable|helper|editor|viewer|askpass|wrapper|exec|shell|hook|pager|browser)"
)
MAX_KEY_CHARACTERS = 64
MAX_OPTIONS = 8
KEY = re.compile(
    r"(?i)[\w.:/,-]*(?:exec|command|cmd|rsh|rsync-path|prog|program|executable|hook|helper|pager|pager\.[\w-]+|editor|visual|askpass|browser|"
    r"opener|viewer|alias\.[\w-]+|fsmonitor|diff|external|textconv|filter|filter\.[\w.-]+|driver|shell|_ssh|lessopen|"
    r"lessclose|launcher|wrapper|runner|linker|invoke|invoke::|logger|ps[0124]|fcedit|upload-?pack|receive-?pack|"
    r"entrypoint|tar_options|makeflags|eval|gitproxy|tunnel|httpd|smtpserver|vcs|split-string|(?:tool|man|browser)\.[\w-]+\.path|"
    r"on(?:outofmemory)?error|exec(?:start|stop|reload|condition)\w*|success::|pkgs::|dir::bin::[\w-]+|"
    r"proxy-?auto-?detect|lessedit|less|more|wrap|call|cc|cxx|rustc|rustdoc|post-renderer|error-handling-script|"
    r"hook-[\w-]+|_interpreter|rsync_ssl_\w+|ts_env|ts_onfinish|mail_reader|ssh_remote_display|autossh_path|ccache_prefix\w*|sendmail|(?:customtransfer|extension)\.[\w-]+\.\w+)"
)
# Variables that name programs for the built-in rules of make and for configure scripts.
TOOLS = word_set(
    "AR AS CC CO CPP CTANGLE CWEAVE CXX F77 FC GET INSTALL LD LEX LINT M2C MAKE MAKEINFO NM OBJC OBJCOPY OBJDUMP "
    "OPENSSL PC RANLIB RM STRIP TANGLE TAR TEX TEXI2DVI WEAVE YACC"
)
MAKES = word_set("make gmake bmake pmake nmake scons waf")
# Variables that hold options of a program.
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
# Git commands that run other git commands: `git lfs push`.
GIT_FRONTS = word_set("lfs subtree")
GIT_PLUMBING = {"send-pack": "push", "http-push": "push", "fetch-pack": "fetch", "http-fetch": "fetch"}
ENCODED = re.compile(r"(?i)[-/]e(?:c|nc?[a-z]*)?")
POWERSHELL = word_set("pwsh powershell pwsh-preview")
ALIAS = re.compile(r"(?i)alias\.")
PAGERS = word_set("zless xzless bzless zmore xzmore")
PLAIN_SHELL = re.compile(r"(?:/usr)?(?:/bin/)?(?:ba|da|z|k|fi)?sh")
# Variables that hold code, or name a file with code, for the next program.
LOADS_CODE = re.compile(
    r"(?:BASH_ENV|LD_PRELOAD|LD_AUDIT|PYTHONSTARTUP|PYTHONINSPECT|PERL5OPT|PERL5DB|RUBYOPT|BASH_FUNC_\w+%%|GIT_CONFIG_(?:COUNT|GLOBAL|"
    r"SYSTEM|PARAMETERS)|GIT_EXEC_PATH)=.|ENV=.*[/$]|NODE_OPTIONS=.*(?:require|import|loader)"
)
LOADS_UNKNOWN_CODE = re.compile(rf"(?!ENV=)(?:{LOADS_CODE.pattern})|ENV=.*<\(")
FUNCTION = re.compile(r"BASH_FUNC_\w+%%=\(\) *(\{.*)", re.DOTALL)
# `ProxyCommand rm x` as one word, and the other commands of ssh.
SSH_OPTION = re.compile(r"(?i)(?:-o)?\s*(?:proxy|local|remote|knownhosts)command[\s=]+(.+)", re.DOTALL)
SOCKET = re.compile(r"(?i)(?:EXEC|SYSTEM|SHELL):([^,]+)")
# How ghostscript, TeX and rpm call a shell from their arguments.
PIPED = re.compile(r"gs|(?:pdf|xe|lua)?(?:la)?tex|rpm|rpmbuild|magick|convert")
PIPES = re.compile(r"(?:%pipe%|\|)\s*(.+)|\\write18\{([^}]*)\}|%\(([^)]*)\)", re.DOTALL)
SED_RUN = re.compile(r"(?:^|[;/{}\sIM!])e\s+(.+)|[\d$!]e\s*(.+)", re.DOTALL)
# `s/a/b/e` runs the result of the substitution.
SED_RUN_MADE = re.compile(r"([^\w\s])[gpiIMm\d]*e[gpiIMm\d]*$")
# `e` alone, and `s/a/b/e`: the contents of the lines are not known.
SED_COMMAND = re.compile(r"\s*(?:[\d,$!]|/[^/]*/[IM]?)*\s*(?:(e)\s*$|s([^\w\s]))")
AWK = word_set("awk gawk mawk nawk original-awk")
# `system($0)`, `print | x`, `x | getline`: the command is not in the program text.
AWK_RUNS_VALUES = re.compile(r"\bsystem\s*\(\s*[^\s\")]|[\w$)\]]\s*\|&?\s*getline|(?<!\|)\|&?\s*(?!getline)[A-Za-z_$(]")
AWK_TEXT = re.compile(r"/(?:\\.|[^/\\\n])*/|\"(?:\\.|[^\"\\])*\"")
# Commands that vim runs without a `!`.
VIM_RUN = re.compile(
    r"\bterm(?:inal)?!?\s+(?:\+\+\S+\s+)*(.+)|\b\w*(?:prg|shell|mp|gp|ep|fp|kp)=((?:\\.|[^\s\\|])+)|"
    r"\bset\s+(?:\w+_)?(?:editor|pager|sendmail|visual|ispell|command|cmd|tunnel|inews)\s*=\s*(.+)"
)
TMUX_RUN = re.compile(r"#\(([^)]{0,100})\)")
OLD_TAR = re.compile(r"[A-Za-z]*[IF][A-Za-z]*")
# How debuggers, databases and similar programs call a shell in their own languages.
SHELL_ESCAPE = re.compile(
    r"(?:^|[\s;{])(?:\.?(?:shell|system|spawn|exec|exec-wrapper)\s+(?:-\w+\s+)*|\\!\s*)(.+)|^\s*\.?(?:sh|sy)\w*\s+(.+)|"
    r"^[.']\s*(?:pso|pi)\s+(.+)|"
    r"^\s*(?:\.o\w*\s|\.imp\w*\s|pipe\s|target\s|\|)[^|]*\|\s*[\"']?(.+)|\be?syscmd\s*\([\s`]*([^')]+)",
    re.DOTALL,
)
CALLS_LANGUAGES = word_set("gdb lldb expect vi vim nvim view ex vimdiff tmux mutt gimp")
"""Programs that run code in other languages, with commands in quotes."""
SHELL_ESCAPERS = word_set(
    "gdb lldb sqlite3 expect mysql mariadb psql maxima gnuplot groff troff nroff gtroff pdfroff groffer m4"
)
CODE_FLAGS = word_set(
    "-f -x -S -u -P -s -F -b -batch -init --file --makefile --justfile --batch --init-file --rcfile --source -c"
)
CODE_LOADERS = SHELL_ESCAPERS | EDITORS | word_set("cmake ctest just ninja ssh scp sftp ip screen tmux deno")
MAKEFILE_IS_INPUT = re.compile(
    r"(?:-f|--file|--makefile) (?:-|/dev/stdin|/dev/fd/0)|.* (?:-f|--\w*file=)(?:-|/dev/stdin|/dev/fd/0)"
)
INLINE_CODE = re.compile(r"-\w*[ceEp].*|--(?:eval|execute|print|command|cmd|expression)(?:=.*)?", re.DOTALL)
NEVER = re.compile(r"(?!)")
LOADED = r"(?!data:|node:)[\w@./-]+"


class ScriptForm(Struct, frozen=True):
    """How an interpreter is called with a script file. Any other call may run code that the line or its input holds."""

    flags: re.Pattern[str] = NEVER
    """Flags without a value in the next word."""
    values: re.Pattern[str] = NEVER
    """Flags with a value in the next word."""
    subcommands: re.Pattern[str] = NEVER
    """First words after which only code of the working tree runs."""
    runners: frozenset[str] = frozenset()
    """First words before the script."""


ANY_SCRIPT = ScriptForm()
_PYTHON = ScriptForm(
    re.compile(r"-[bBdEIOPqRsSuvVx]+|-[bBdEIOPqRsSuvVx]*[WX].+"), re.compile(r"-[bBdEIOPqRsSuvVx]*[WX]|--check-hash.*")
)
_RUNS_TREE = re.compile(
    r"test|task|fmt|format|lint|check|analyze|doc|install|add|remove|update|outdated|upgrade|cache|info|build|compile|"
    r"package|pub|fix|create|deps\.\w+|credo|dialyzer|ecto\.\w+|phx\.(?:server|routes|gen\.\w+)|CMD"
)
SCRIPT_FORMS = {
    **dict.fromkeys(("python", "pypy"), _PYTHON),
    "perl": ScriptForm(
        re.compile(r"-[acfglnpsStTuUvVwWX]+|-I.+|-M[\w:]+(?:=[\w,:./-]+)?|-0\d*"), re.compile(r"-[wTt]*I")
    ),
    "ruby": ScriptForm(
        re.compile(r"-[aclnpsSvwU]+|-W\d?|-[IrE].+|--(?:yjit|jit|verbose|(?:enable|disable)[=-][\w-]+)"),
        re.compile(r"-w*[IrE]"),
    ),
    **dict.fromkeys(
        ("node", "nodejs", "tsx", "ts-node"),
        ScriptForm(
            re.compile(
                r"-c|--(?:check|watch|test|test-only|no-warnings|no-deprecation|trace-(?:warnings|deprecation|uncaught|exit|gc)|enable-source-maps|expose-gc|"
                r"inspect(?:-brk|-wait)?(?:=[\w.:]+)?|(?:max|stack)-[a-z-]+=\d+|env-file(?:-if-exists)?=.+|"
                r"test-[a-z-]+=[\w*./-]+|experimental-(?:vm-modules|strip-types|transform-types|json-modules|test-coverage|"
                rf"sqlite|fetch|specifier-resolution=node)|(?:require|import|loader)={LOADED}|conditions=\w+)"
            ),
            re.compile(r"-[rC]|--(?:require|import|loader|conditions)"),
        ),
    ),
    "php": ScriptForm(
        re.compile(r"-[lnqv]+|-d(?:memory_limit|display_errors|error_reporting|xdebug\.mode|max_execution_time)=\w+"),
        re.compile(r"-f"),
    ),
    "deno": ScriptForm(
        re.compile(r"-[Aqr]+|--(?:allow|deny|no|unstable|watch|reload|quiet|cached)[\w-]*(?:=.+)?"),
        subcommands=_RUNS_TREE,
        runners=word_set("run"),
    ),
    "bun": ScriptForm(re.compile(r"--(?:watch|hot|smol|bun|silent)"), subcommands=_RUNS_TREE, runners=word_set("run")),
    **dict.fromkeys(word_set("swift dart mix R"), ScriptForm(subcommands=_RUNS_TREE, runners=word_set("run"))),
    "Rscript": ScriptForm(re.compile(r"--(?:vanilla|no-\w+(?:-\w+)?|slave|quiet|verbose)")),
    "julia": ScriptForm(
        re.compile(r"--project(?:=.+)?|-[tp]\d+|-O\d?|--threads=\w+|--startup-file=no|-q"), re.compile(r"-[tp]")
    ),
    "lua": ScriptForm(re.compile(r"-[WEv]|-l.+"), re.compile(r"-l")),
    "awk": ScriptForm(re.compile(r"-F.+|-v.+"), re.compile(r"-[Fv]")),
}
"""By the name of the interpreter without its version."""
SCRIPT_MODULES = word_set(
    "pytest unittest pip venv virtualenv build twine mypy pyright black ruff isort flake8 pylint bandit tox nox "
    "coverage pre_commit sphinx mkdocs poetry pipx uv json.tool compileall py_compile ensurepip uvicorn gunicorn "
    "hypercorn pyflakes pycodestyle pydocstyle vulture radon yapf autopep8 pyupgrade piptools"
)
"""The modules of `python -m` that run no code from their arguments or their input."""
INTERACTIVE = word_set("mongosh mongo iex ghci jshell irb pry erl ipython bpython maxima nmap")
"""Interpreters that read commands from their input even with a file."""
FROM_INPUT = re.compile(
    r"(?:.*/)?dev/+(?:stdin|fd|tty|pts)\b.*|(?:/+|(?:\.\./)+)proc/.*|.*\bdata:.*|--eval.*", re.DOTALL
)
"""An argument that makes a script of the input, or of the argument itself."""
NOT_A_SCRIPT = re.compile(
    r"-.*|(?:.*/)?dev/(?:stdin|fd|tty|pts)\b.*|/dev/.*|(?:.*/)?proc/.*|[\w+.-]+:.*|.*[$`<>].*", re.DOTALL
)
"""What comes from the input, a substitution or a URL is not a file of the working tree."""
ONLY_SHOWS_VERSION = word_set("-V -v --version --help -h")
DATABASES = word_set("psql mysql mariadb sqlite3")
CLIENT_COMMAND = re.compile(r"\\|\b(?:source|system|tee|pager|edit|load|copy|infile|outfile)\b", re.IGNORECASE)
"""A command of a database client itself: `\\copy`, `source x`. What a server runs opens no file here."""
CLIENT_TEXT = re.compile(r"(?:-[ce]|--(?:command|execute))(?:=(.+))?|-[ce](.+)", re.DOTALL)
SQLITE_FLAGS = re.compile(
    r"-{1,2}(?:readonly|header|noheader|csv|json|column|box|line|list|markdown|table|html|quote|bail|batch)"
)
SQLITE_SHOWS = re.compile(r"\.(?:tables|schema|indexes|indices|databases|dump)(?: +[\w%]+)?")
SQLITE_STATEMENT = re.compile(
    r"\s*(?:select|insert|update|delete|explain|with|create (?:table|index)|drop)\b[^.][^\n]*", re.IGNORECASE
)
SQLITE_OPENS = re.compile(r"(?i)\b(?:attach|vacuum|virtual|pragma\w*|fsdir|zipfile|csv|dbstat|sqlar)\b|/\*|--")
SQLITE_TABLE = re.compile(r"(?i)\b(?:table(?: if not exists)?|into) +\w+ *\(")
SQLITE_FUNCTION = re.compile(r"(\w+)[\"'`\]\s]*\(")
SQLITE_COMPUTES = word_set(
    "abs avg cast char coalesce count date datetime exists format group_concat hex ifnull iif in instr json json_array "
    "json_each json_extract json_object julianday last_insert_rowid length like lower ltrim max min nullif over printf "
    "quote random rank replace round row_number rtrim strftime substr substring sum time total trim typeof unicode "
    "upper values and or not as select where when then else on from table key default check unique references index"
)
"""What may stand before a parenthesis in a statement that opens no file but the database."""
COMPUTES = re.compile(
    r"(?:[\s()\[\],:;+*/%<>=!-]|\d+(?:\.\d+)?|\b(?:print|len|range|sum|min|max|abs|round|sorted|int|float|str|bool|list|"
    r"tuple|for|in|if|else|and|or|not|True|False|None)\b)*"
)
"""Python code that only computes: it names nothing that opens a file."""
READS_INPUT = word_set("at batch crontab newgrp")
# Programs that start a shell if they are given no command: the operands before it, and the flags with a value.
STARTS_SHELL = {
    **dict.fromkeys(("ssh", "autossh"), (1, re.compile(r"-\w*[BbcDEeFIiJLlMmOopQRSWw]"))),
    **dict.fromkeys(
        ("su", "runuser"), (1, re.compile(r"-\w*[gGsw]|--(?:group|supp-group|shell|whitelist-environment)"))
    ),
    **dict.fromkeys(("sudo", "doas"), (0, re.compile(r"-\w*[ugpCDhrtTRU]"))),
    "script": (1, re.compile(r"-\w*[EIOBTmo]")),
    "chroot": (1, NEVER),
    **dict.fromkeys(("nsenter", "unshare", "fakeroot"), (0, re.compile(r"-\w*[tGSRwlisb]"))),
}
LOGIN_SHELL = re.compile(r"-\w*[si]\w*|--(?:shell|login)")
TAKES_SCRIPT = re.compile(r"-\w*c|--(?:session-)?command|-\w*u")
CRON_LINE = re.compile(r"^[ \t]*(?:@\w+|(?:[\d*/,-]+[ \t]+){4}[\w*/,-]+)[ \t]+(.+)", re.MULTILINE)
# Programs that insert their input into a command.
FILLERS = word_set("xargs parallel rush")
FILLED = re.compile(r"-[a-zA-Z0-9]*?[IiJ](.*)|--replace(?:=(.*))?")
FILLER_VALUE = re.compile(
    r"-[a-zA-Z0-9]*[InPdaLsEJjNS]|--(?:arg-file|delimiter|max-args|max-procs|max-lines|max-chars|jobs|sshlogin|colsep|"
    r"joblog|results|timeout|delay|eof)"
)
# Programs that run a command or script from the words that are appended.
OPEN_ENDED = re.compile(
    r"(?:.*/)?(?:(?:ba|da|z|k|a)?sh|env|sudo|doas|nice|nohup|time|timeout|command|exec|eval|setsid|stdbuf|xargs|ionice|chrt|"
    r"choom|busybox)"
)
CLUSTER = re.compile(r"-[A-Za-z]{0,6}")
SPECIAL = (
    TEXTS | SUBSCRIPTS | EDITORS | PAGERS | MAKES | POWERSHELL | CALLS_LANGUAGES | SHELL_ESCAPERS
    | {"", "gh", "git", "sed"}
)  # fmt: skip
"""The programs that `_special_texts` handles by name."""


def find_shell_texts(name: str, literal: Sequence[str]) -> Iterator[str]:
    """Arguments, and parts of arguments, that some shell may run."""
    return iter(dict.fromkeys(filter(None, _iter_shell_texts(name, literal))))


@lru_cache(maxsize=512)
def _is_special(name: str) -> bool:
    """Whether a program needs more than a check of its options."""
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
        yield from (text for flag, word in pairwise(rest) if (text := _decode_script(flag, word)))
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
    """The value of `key=value`, or of `a=key=value`, if the key names a command."""
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
    """The values of these options, in the next word or in the same one, also for abbreviations and clusters."""
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
                    text = (value or following).lstrip("|!=")
                    yield from (text, text.replace(",", " "))


def _decode_script(flag: str, word: str) -> str | None:
    """The script of `pwsh -EncodedCommand`; None if there is none, or if it is not valid."""
    if not ENCODED.fullmatch(flag):
        return None
    try:
        return base64.b64decode(word, validate=True).decode("utf-16-le")
    except ValueError:
        return None


def other_names(literal: Sequence[str]) -> Iterator[str]:
    """Other git commands that do the same as this one. The first word is `git`."""
    name, rest = "".join(literal[1:2]), literal[2:]
    if name in GIT_FRONTS:
        yield from (" ".join(["git", *rest[index:]]) for index in range(min(len(rest), MAX_OPTIONS)))
    if name in GIT_PLUMBING:
        yield " ".join(["git", GIT_PLUMBING[name], *rest])


def find_command_positions(name: str, literal: Sequence[str]) -> Iterator[int]:
    """The positions at which a command may begin after a subcommand that runs it."""
    if ANYWHERE.fullmatch(name):
        yield from range(1, len(literal))
    if name in COPYING_PROGRAMS:
        yield from (index for index, word in enumerate(literal) if index and PROGRAM.fullmatch(word))
    known = SUBRUNNERS.get(name)
    runs_command = (
        known.__contains__ if known else RUNS_COMMAND.fullmatch if name in BUILDS or name in SERVICES else None
    )
    if runs_command is not None:
        begin = next((index for index, word in enumerate(literal) if index and runs_command(word)), len(literal))
        yield from range(begin + 1, len(literal))


def find_renamed_programs(name: str, raw_words: Sequence[str]) -> Iterator[str]:
    """Programs that are copied under another name: `cp $(which rm) x`."""
    if name in COPYING_PROGRAMS:
        yield from (found[1] for word in raw_words[1:] for found in FOUND_PROGRAM.finditer(word))
        yield from (word[3:] for word in raw_words[1:] if word.startswith("if=/"))


def runs_its_input(name: str, literal: Sequence[str]) -> bool:
    """Whether the input of a program may become a command that it runs: `xargs -I{} {} x`, `xargs sh -c`."""
    if name == "sed":
        operands = (word for flag, word in pairwise(literal) if word[:1] != "-" and flag not in ("-f", "--file"))
        return _runs_lines(next(operands, ""))
    if name in AWK:
        return any(AWK_RUNS_VALUES.search(AWK_TEXT.sub('""', word)) for word in literal[1:])
    if name in ("fd", "fdfind"):
        return any(flag in SUBRUNNERS[name] and "{}" in word for flag, word in pairwise(literal))
    if name in POWERSHELL:
        return any(ENCODED.fullmatch(flag) and _decode_script(flag, word) is None for flag, word in pairwise(literal))
    if name not in FILLERS:
        return False
    begin = find_filled_command(literal)
    marks = [] if name == "xargs" else ["{}"]
    for index, word in enumerate(literal[1:begin], 1):
        if found := FILLED.fullmatch(word):
            marks += [found[1] or found[2] or next(iter(literal[index + 1 :]), "{}"), "{}"]
    return _is_filled(literal[begin:], marks, name == "xargs")


def find_filled_command(literal: Sequence[str]) -> int:
    """Where the command begins in the arguments of a program that adds words to it."""
    begin = 1
    while begin < len(literal) and literal[begin][:1] == "-":
        begin += 2 if FILLER_VALUE.fullmatch(literal[begin]) else 1
    return begin


def starts_shell(words: Sequence[str | None]) -> bool:
    """Whether a program has no command in its arguments, and so runs its input: `ssh host`, `parallel`."""
    literal = [word or "x" for word in words]
    name = literal[0].rpartition("/")[2] if literal else ""
    if name == "parallel":
        return find_filled_command(literal) >= len(literal)
    if name not in STARTS_SHELL or (name in ("sudo", "doas") and not any(map(LOGIN_SHELL.fullmatch, literal))):
        return False
    max_operands, with_value = STARTS_SHELL[name]
    if name in ("su", "runuser", "script") and any(map(TAKES_SCRIPT.match, literal[1:])):
        return False
    operands = [
        word
        for before, word in pairwise(literal)
        if word[:1] != "-" and not (before[:1] == "-" and with_value.fullmatch(before))
    ]
    return len(operands) <= max_operands


def has_inline_code(name: str, words: tuple[str, ...]) -> bool:
    """Whether a program takes code that may open files from its arguments or its input: `python -c`, `perl -ne`."""
    if name == "sqlite3":
        return not _only_queries(words[1:])
    if name in DATABASES:
        texts = [
            found[1] or found[2] or after
            for word, after in pairwise((*words, ""))
            if (found := CLIENT_TEXT.fullmatch(word))
        ]
        files = [file for flag, file in pairwise(words) if flag in ("-f", "--file")]
        return (
            not (texts or files)
            or any(map(CLIENT_COMMAND.search, words[1:]))
            or any(map(NOT_A_SCRIPT.fullmatch, files))
        )
    if name in EDITORS or name == "lldb":
        runs_text = any(word[:1] == "+" or INLINE_CODE.fullmatch(word) for word in words[1:])
        return runs_text or name not in ("less", "more", "man")
    if not (INTERPRETERS.fullmatch(name) or name in SHELL_ESCAPERS) or runs_script_file(name, words):
        return False
    is_python = name.rstrip("0123456789.") in ("python", "pypy")
    return not (is_python and words[1:2] == ("-c",) and COMPUTES.fullmatch("".join(words[2:3])))


def _only_queries(arguments: Sequence[str]) -> bool:
    """Whether a call of sqlite3 opens no file but its database: it has no server, and its functions open files."""
    words = [word for word in arguments if not SQLITE_FLAGS.fullmatch(word)]
    if not words or words[0][:1] == "-":
        return words == ["--version"]
    return len(words) > 1 and all(
        SQLITE_SHOWS.fullmatch(word)
        or (
            SQLITE_STATEMENT.fullmatch(word)
            and not SQLITE_OPENS.search(word)
            and SQLITE_COMPUTES.issuperset(map(str.lower, SQLITE_FUNCTION.findall(SQLITE_TABLE.sub("= (", word))))
        )
        for word in words[1:]
    )


def runs_script_file(name: str, words: Sequence[str]) -> bool:
    """Whether an interpreter certainly gets its program from a file or a module, not from the line or its input."""
    name, rest = name.rstrip("0123456789."), list(words[1:])
    if len(rest) == 1 and rest[0] in ONLY_SHOWS_VERSION:
        return True
    form = SCRIPT_FORMS.get("awk" if name in AWK else name, ANY_SCRIPT)
    if name in INTERACTIVE or any(map(FROM_INPUT.fullmatch, rest)):
        return False
    if rest and form.subcommands.fullmatch(rest[0]):
        return True
    has_runner = bool(rest) and rest[0] in form.runners
    rest = rest[has_runner:]
    while rest and rest[0][:1] == "-":
        if form.values.fullmatch(rest[0]) and len(rest) > 1 and (name in AWK or not NOT_A_SCRIPT.fullmatch(rest[1])):
            rest = [rest[1]] if rest[0] == "-f" else rest[2:]
        elif form.flags.fullmatch(rest[0]):
            rest = rest[1:]
        else:
            break
    if form is _PYTHON and rest[:1] == ["-m"]:
        modules = [module for flag, module in pairwise(rest) if flag == "-m"]
        return SCRIPT_MODULES.issuperset(modules if modules[:1] == ["coverage"] else modules[:1]) and modules != []
    if name in AWK:
        scripts = [file for flag, file in pairwise(rest) if flag == "-f"]
        flags = [word for word in rest if word[:1] == "-"]
        return rest[:1] == ["-f"] and flags == ["-f"] * len(scripts) and not any(map(NOT_A_SCRIPT.fullmatch, scripts))
    if form.runners and not has_runner and not any("." in word or "/" in word for word in rest[:1]):
        return False  # another subcommand
    if not rest and "--test" in words:
        return form.flags.fullmatch("--test") is not None
    if not rest or NOT_A_SCRIPT.fullmatch(posixpath.normpath(rest[0])):
        return False
    return form is not ANY_SCRIPT or not ("-" in rest or any(map(INLINE_CODE.fullmatch, rest)))


def _runs_lines(script: str) -> bool:
    for piece in re.split(r"[;{}\n]", script):
        if (found := SED_COMMAND.match(piece)) and (found[1] or "e" in "".join(piece.split(found[2])[-1:])[:8]):
            return found[1] is not None or len(piece[found.end() :].split(found[2])) == 3
    return False


def _is_filled(words: Sequence[str], marks: Sequence[str], appends: bool) -> bool:
    """Whether the inserted text may be the name of the command or the script of a shell."""
    if not words:
        return False
    last = next((index for index in range(len(words)) if not OPEN_ENDED.fullmatch(words[index])), len(words))
    runs_text = last > 0 and any("c" in word and CLUSTER.fullmatch(word) for word in words[last:])
    operands = [word for word in words[last:] if word[:1] != "-"]
    if last > 0 and not marks and appends and not operands:
        return True
    candidates = operands if runs_text else operands[:1]
    return any(mark in word for mark in marks if mark for word in (*words[:1], *candidates))


def reads_code(name: str, raw_words: Sequence[str]) -> bool:
    """Whether a program reads code from a substitution or its input: `make -f -`, `vim -S <(...)`."""
    if name != "make" and name not in CODE_LOADERS and not INTERPRETERS.fullmatch(name):
        return False
    for flag, word in pairwise(raw_words):
        if word.startswith("<(") and (flag in CODE_FLAGS or (flag == raw_words[0] and name not in AWK)):
            return True
        if "=<(" in word or (name == "make" and MAKEFILE_IS_INPUT.fullmatch(f"{flag} {word}")):
            return True
    return False


def reads_program_from_input(words: Sequence[str | None]) -> bool:
    """Whether this is an interpreter that reads its program from a pipe or a here-document."""
    name = (words[0] or "").rpartition("/")[2] if words else ""
    if not (INTERPRETERS.fullmatch(name) or name in SHELL_ESCAPERS or name in EDITORS):
        return False
    if name in SHELL_ESCAPERS or name in EDITORS:
        return True
    known = [word or "x" for word in words]
    if name in AWK:
        return any(NOT_A_SCRIPT.fullmatch(file) for flag, file in pairwise(known) if flag == "-f")
    return not runs_script_file(name, known)


def find_shell_escapes(program: str) -> Iterator[str]:
    """Texts in a program for an interpreter that may be passed to a shell."""
    yield from ("".join(found.groups("")) for found in QUOTED.finditer(program))
    for line in program.splitlines():
        yield from ("".join(found.groups("")) for found in [SHELL_ESCAPE.search(line)] if found)
        yield from (line.rpartition("!")[2] for _ in range(line.startswith(("!", "~!", ":!"))))
