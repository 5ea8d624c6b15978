"""Parse the arguments of a program: flags, their values, operands, and the command that a wrapper runs.

A `Program` lists the flags that are known to be harmless. Any other flag, also an abbreviated one, makes the command
unknown: `--outp=x` is not `--output`, and neither is in a table of readers.

    Program(short="an:", long="all lines= color?")
        -a, -n 5, -n5, -an5, --all, --lines 5, --lines=5, --color, --color=never

In `short`, one colon means a value, two colons an optional attached value. In `long`, `=` means a value, `?` an
optional attached value.

A wrapper is a program that runs the command in its arguments and changes nothing else. Only these are looked through to
allow a command, and only with known flags. `env`, `sudo`, `watch`, `setsid`, `ionice` and `flock` are not among them:
they change what the command may do, or how often it runs.

The groups of programs at the end are used to find denied commands and files. RUNNERS run a command in their arguments.
The arguments of INERT programs are never a command. In those of any other program there may be one:
`mpirun -n 4 rm x`, `kcmd --on-exit='rm x'`. For a program that is missing here, `rm` among its arguments matches a rule
that denies `rm`. The groups also tell which programs take files: an argument that is only known at run time may be any
file, unless the program opens none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeGuard

import msgspec

from parley.permissions.base import split_rows, word_set
from parley.permissions.shell.strict_parser import ASSIGNMENT, COMMAND, RESERVED, SimpleCommand
from parley.protocol.base import Struct

NUMBER_FLAG = re.compile(r"[-+]\d+")
SHORT = re.compile(r"(.)(:{0,2})")
DURATION = re.compile(r"\d+(?:\.\d+)?[smhd]?")
MAX_WRAPPERS = 16
WRAPPERS = word_set("timeout time nice nohup stdbuf command builtin noglob xargs")
CD_COMMANDS = frozenset(["cd", "pushd", "popd"])
IN_SHELL = frozenset(["time", "command", "builtin"])
"""Wrappers after which `cd` is still the builtin; after others it would be a program without effect."""


class Program(Struct, frozen=True, kw_only=True):
    short: str = ""
    long: str = ""
    operands: str = "files"
    """The operands: `files`, `text`, `pattern` (a text, then files) or `names` (files if they contain a slash)."""
    min_operands: int = 0
    max_operands: int | None = None
    globs: str = "after a name"
    """Where a glob is allowed: `anywhere` if no file name could be a harmful flag, `after a name` if it begins
    with a literal text so that no match is a flag, `nowhere` if one operand too many is harmful."""
    number_flags: bool = False
    """`-5` is a flag."""
    pattern_flags: str = ""
    """Flags whose value replaces the pattern among the operands."""
    recursive_flags: str = ""
    """Flags with which a missing operand means the current folder; `*` if it always does."""
    file_flags: str = ""
    """Flags whose value is a file that is read."""
    list_prefix: str = ""
    """The prefix of an argument that names a file with further arguments; such arguments are refused."""


def program_table(text: str) -> dict[str, Program]:
    """Programs by name, written as one text: rows of `names | options: short long`.

    The first word after the colon is `short`, or `-` for none; the others are `long`. The options are the other fields,
    with commas for blanks.
    """
    found: dict[str, Program] = {}
    for head, flags in split_rows(text):
        names, _, options = head.partition(" | ")
        given = {name: value.replace(",", " ") for name, _, value in (each.partition("=") for each in options.split())}
        short, _, long = flags.partition(" ")
        fields = {**given, "short": short.strip("-"), "long": " ".join(long.split())}
        fields |= {name: "true" for name, value in given.items() if not value}
        found |= dict.fromkeys(names.split(), msgspec.convert(fields, Program, strict=False))
    return found


class ParsedArguments(Struct, frozen=True):
    """The flags and operands of a command."""

    flags: tuple[tuple[str, str], ...]
    """Name without dashes, and value."""
    operands: tuple[int, ...]
    """Positions among the words."""

    def has_flag(self, *names: str) -> bool:
        return any(flag in names for flag, _ in self.flags)

    def values(self, *names: str) -> tuple[str, ...]:
        """The values of these flags."""
        return tuple([value for flag, value in self.flags if flag in names])

    def list_operands(self, words: Sequence[str]) -> tuple[str, ...]:
        return tuple([words[index] for index in self.operands])


@lru_cache(maxsize=512)
def _short_flags(text: str) -> dict[str, str]:
    return {found[1]: found[2] for found in SHORT.finditer(text)}


@lru_cache(maxsize=512)
def _long_flags(text: str) -> dict[str, str]:
    return {name.rstrip("=?"): name[len(name.rstrip("=?")) :] for name in text.split()}


def parse_arguments(program: Program, words: Sequence[str], begin: int = 1) -> ParsedArguments | None:
    """Flags and operands, if every flag is known."""
    flags: list[tuple[str, str]] = []
    operands: list[int] = []
    index, only_operands = begin, False
    while index < len(words):
        word = words[index]
        index += 1
        if only_operands or word == "-" or word[:1] != "-":
            operands.append(index - 1)
        elif word == "--":
            only_operands = True
        elif program.number_flags and NUMBER_FLAG.fullmatch(word):
            flags.append(("number", word[1:]))
        else:
            following = words[index] if index < len(words) else None
            taken = (
                _parse_long_flag(program, word, following)
                if word[:2] == "--"
                else _parse_cluster(program, word, following)
            )
            if taken is None:
                return None
            flags += taken[0]
            index += taken[1]
    if program.list_prefix and any(word.startswith(program.list_prefix) for word in words[begin:]):
        return None
    if len(operands) < program.min_operands or (
        program.max_operands is not None and len(operands) > program.max_operands
    ):
        return None
    return ParsedArguments(tuple(flags), tuple(operands))


def _is_value(following: str | None) -> TypeGuard[str]:
    """Whether a word may be the value of the flag before it.

    A word that looks like a flag may not: if the program takes no value after all, it would be an unchecked flag.
    """
    return following is not None and (following[:1] != "-" or NUMBER_FLAG.fullmatch(following) is not None)


def _parse_long_flag(program: Program, word: str, following: str | None) -> tuple[list[tuple[str, str]], int] | None:
    """The flag in a word, and how many following words are its value."""
    name, equals, value = word[2:].partition("=")
    kind = _long_flags(program.long).get(name)
    if kind is None or (kind == "" and equals):
        return None
    if kind == "=" and not equals:
        return ([(name, following)], 1) if _is_value(following) else None
    return [(name, value)], 0


def _parse_cluster(program: Program, word: str, following: str | None) -> tuple[list[tuple[str, str]], int] | None:
    """The flags in a word like `-la` or `-n5`, and how many following words are a value."""
    known = _short_flags(program.short)
    found: list[tuple[str, str]] = []
    for index in range(1, len(word)):
        kind = known.get(word[index])
        if kind is None:
            return None
        value = word[index + 1 :]
        if kind == ":" and not value:
            return ([*found, (word[index], following)], 1) if _is_value(following) else None
        if kind:
            return [*found, (word[index], value)], 0
        found.append((word[index], ""))
    return found, 0


def accepts_globs(program: Program, words: Sequence[str], globs: Sequence[int], found: ParsedArguments) -> bool:
    """Whether the globs among the arguments can only become operands."""
    if not globs:
        return True
    if program.globs == "nowhere" or not set(globs) <= set(found.operands):
        return False
    if program.operands == "pattern" and globs[0] == found.operands[0] and not _has_pattern(program, found):
        return False
    return program.globs == "anywhere" or all(words[index][0] not in "*?[-" for index in globs)


def _has_pattern(program: Program, found: ParsedArguments) -> bool:
    """Whether a flag gives the pattern, so that all operands are files."""
    return found.has_flag(*program.pattern_flags.split())


def read_operands(program: Program, words: Sequence[str], found: ParsedArguments) -> tuple[str, ...]:
    """The files that a command reads."""
    values = found.values(*program.file_flags.split())
    if program.operands == "text":
        return values
    operands = found.list_operands(words)
    if program.operands == "names":
        return values + tuple(operand for operand in operands if "/" in operand)
    if program.operands == "pattern" and not _has_pattern(program, found):
        operands = operands[1:]
    if not operands and (program.recursive_flags == "*" or found.has_flag(*program.recursive_flags.split())):
        operands = (".",)
    return values + tuple(operand for operand in operands if operand != "-")


FLAGS = {
    "timeout": Program(short="k:s:v", long="kill-after= signal= foreground preserve-status verbose"),
    "time": Program(short="p"),
    "nice": Program(short="n:", long="adjustment=", number_flags=True),
    "stdbuf": Program(short="i:o:e:", long="input= output= error="),
    "xargs": Program(short="0rtn:P:L:", long="null no-run-if-empty verbose max-args= max-procs= max-lines="),
}
NO_FLAGS = Program()


class UnwrappedCommand(Struct, frozen=True):
    """A command without its wrappers."""

    argv: tuple[str, ...]
    words: tuple[str, ...]
    globs: tuple[int, ...]
    is_open_ended: bool = False
    """More words are appended at run time, from a pipe (xargs)."""
    wrappers: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the program, without its folder."""
        return self.argv[0].rpartition("/")[2]


@lru_cache(maxsize=128)
def unwrap(command: SimpleCommand) -> UnwrappedCommand | None:
    """The command inside; None if the arguments of a wrapper are not understood."""
    inner = UnwrappedCommand(command.argv, command.words, command.globs)
    while inner.argv and inner.argv[0] in WRAPPERS:
        begin = _find_begin(inner.argv) if len(inner.wrappers) < MAX_WRAPPERS else None
        if begin is None or begin >= len(inner.argv) or any(index <= begin for index in inner.globs):
            return None
        word = inner.argv[begin]
        if word != inner.words[begin] or not COMMAND.fullmatch(word) or word in RESERVED or ASSIGNMENT.match(word):
            return None
        inner = UnwrappedCommand(
            inner.argv[begin:],
            inner.words[begin:],
            tuple(index - begin for index in inner.globs),
            inner.is_open_ended or inner.argv[0] == "xargs",
            (*inner.wrappers, inner.argv[0]),
        )
    return inner if inner.argv else None


def git_words(command: SimpleCommand) -> Sequence[str] | None:
    """The arguments of a command that runs git, or may run it."""
    inner = unwrap(command)
    if inner is None:
        return ("git",)
    return inner.argv if inner.name == "git" else None


def inner_argv(command: SimpleCommand) -> tuple[str, ...]:
    """The words of the command inside; all words if the arguments of a wrapper are not understood."""
    inner = unwrap(command)
    return inner.argv if inner else command.argv


def _find_begin(argv: tuple[str, ...]) -> int | None:
    """The position of the command in the arguments of its wrapper."""
    program = FLAGS.get(argv[0], NO_FLAGS)
    index = 1
    while index < len(argv) and argv[index].startswith("-"):
        if argv[index] == "-":
            return None
        # A flag that is not complete by itself needs the next word as its value.
        width = 2 if parse_arguments(program, argv[index : index + 1], 0) is None else 1
        if parse_arguments(program, argv[index : index + width], 0) is None:
            return None
        index += width
    if argv[0] != "timeout":
        return index
    return index + 1 if index < len(argv) and DURATION.fullmatch(argv[index]) else None


CD = Program(short="LPe@", max_operands=1, globs="nowhere")


def find_cd_target(argv: Sequence[str], home: str | None) -> str | None:
    """The folder as written, or the home folder if there is no argument; None if it is not known."""
    found = parse_arguments(CD, argv) if argv[0] == "cd" else None
    if found is None:
        return None
    destination = argv[found.operands[0]] if found.operands else home
    return None if destination == "-" or destination is None or destination[:1] == "+" else destination


RUNNERS = {
    **dict.fromkeys(
        word_set(
            "time nice nohup stdbuf command builtin noglob env sudo doas xargs watch setsid ionice exec coproc strace "
            "ltrace unshare nsenter busybox toybox parallel caffeinate chrt catchsegv systemd-run script gdb ! then do "
            "else elif if while until prlimit torify torsocks proxychains proxychains4 dbus-run-session xvfb-run "
            "fakeroot valgrind entr screen firejail bwrap unbuffer chronic npx bunx rlwrap cpulimit tsp choom pkexec "
            "ssh-agent start-stop-daemon eatmydata linux32 linux64 i386 x86_64 uname26 arch daemonize dumb-init tini "
            "catatonit chpst softlimit systemd-inhibit systemd-cat systemd-nspawn run0 nsjail minijail0 fakechroot "
            "ccache distcc sccache scan-build bear intercept-build heaptrack uftrace tsocks sshpass "
            "dbus-launch xinit xterm urxvt rxvt alacritty kitty foot konsole gnome-terminal xfce4-terminal terminator "
            "st dtach abduco byobu ifne run-one uclampset openvt open cross-env env-cmd watchexec nodemon please "
            "calife gpg-agent aa-exec newrole schroot trickle cgexec cset nq tmate lldb rr libtool wine box64 winpty "
            "reflex concurrently onchange chokidar shell pwsh powershell"
        ),
        0,
    ),
    **dict.fromkeys(
        word_set(
            "timeout flock chroot taskset runuser su sg numactl setpriv setarch ssh autossh faketime gosu su-exec "
            "setuidgid envuidgid envdir logsave runcon setlock lckdo kcov sandbox-exec lxc-attach lxc-execute mosh "
            "withlock proot"
        ),
        1,
    ),
}
"""Programs that run the command in their arguments, with the number of operands before it. A rule for their beginning
does not say which command, and a denied command is found after them."""
FILE_FREE = word_set(
    ": true false echo printf test [ [[ let read export declare typeset local readonly unset set shift shopt return "
    "exit break continue wait kill sleep seq expr basename dirname which type hash pwd id whoami uname nproc tty jobs "
    "fg bg disown umask ulimit getopts trap times ps pgrep pkill pidof killall clear uptime free groups logname yes "
    "factor uuidgen"
)
"""Programs that open no file, whatever their arguments are."""
SHELL_TOOLS = word_set(
    # Builtins and coreutils.
    ": true false cd pushd popd dirs pwd set shift shopt umask ulimit jobs fg bg disown kill type which whereis "
    "whatis apropos help history return exit break continue times suspend logout caller enable hash unalias getopts "
    "wait arch b2sum base32 base64 basename basenc chcon chgrp chmod chown cksum comm csplit cut date df dir "
    "dircolors dirname du echo expand expr factor fmt fold groups head hostid hostname id join link ln logname ls "
    "md5sum mkdir mkfifo mknod mktemp nl nproc numfmt od paste pathchk pinky pr printenv printf ptx readlink "
    "realpath rm rmdir seq sha1sum sha224sum sha256sum sha384sum sha512sum shred shuf sleep stat stty sum sync tac "
    "tail tee touch tr truncate tsort tty uname unexpand uniq unlink users vdir wc who whoami yes cat cp mv dd "
    "install sort split test [ "
    # Text and files.
    "grep egrep fgrep rg ag ack zgrep xzgrep bzgrep find fd fdfind locate plocate updatedb tree file diff cmp "
    "colordiff patch strings hexdump xxd column col rev look cal bc jq yq xq xmllint csvcut csvgrep csvlook gzip "
    "gunzip zcat bzip2 bunzip2 bzcat xz unxz xzcat zstd unzstd lz4 zip unzip unrar 7z 7za ar ranlib nm objdump "
    "readelf ldd size strip addr2line cpio exa eza lsd bat batcat delta fzf cloc tokei scc wcstat iconv dos2unix "
    "unix2dos uuidgen openssl md5 shasum cscope ctags etags tldr info pandoc typos codespell vale aspell hunspell "
    "spell"
)
SYSTEM = word_set(
    # Processes and the system.
    "ps top htop btop pgrep pkill pidof killall lsof fuser free vmstat iostat mpstat sar uptime w last lastlog "
    "dmesg journalctl systemctl service loginctl hostnamectl timedatectl localectl mount umount lsblk blkid findmnt "
    "swapon swapoff losetup fdisk parted mkfs fsck sysctl lscpu lsmem lspci lsusb lsmod modinfo udevadm getent "
    "getconf locale localedef useradd userdel usermod groupadd groupdel passwd chsh chfn gpasswd visudo adduser "
    "addgroup deluser pstree renice skill snice tload pmap pwdx chattr lsattr getfacl setfacl logger clear reset "
    "tput tset script ss netstat ifconfig route arp ping ping6 traceroute tracepath mtr dig host nslookup whois "
    "nmcli iw iwconfig ethtool telnet ufw"
)
BUILDS = word_set(
    # Packages and versions.
    "apt apt-get apt-cache apt-file apt-mark apt-key aptitude dpkg dpkg-query dpkg-deb snap dnf yum microdnf rpm "
    "zypper pacman yay paru apk emerge brew port choco winget scoop pkg pkg_add xbps-install nix-env eopkg opkg pip "
    "pip3 pipdeptree gem cpan cpanm luarocks composer cargo rustup npm pnpm yarn bun bower conda mamba poetry uv "
    "pipenv pdm hatch rye go mix hex rebar3 cabal stack opam nuget dotnet vcpkg conan pre-commit asdf mise nvm fnm "
    "volta pyenv rbenv nodenv sdk "
    # Builds, tests and linters: a target or a file may have any name.
    "make gmake cmake ninja meson bazel bazelisk buck buck2 pants ant mvn mvnw gradle gradlew sbt task rake just "
    "scons waf nx turbo lerna rush vite webpack rollup parcel esbuild tsc eslint prettier stylelint biome jest "
    "vitest mocha ava tap cypress playwright pytest tox nox ruff black isort flake8 pylint mypy pyright bandit "
    "coverage golangci-lint gofmt goimports rustfmt rustc shellcheck shfmt hadolint yamllint markdownlint "
    "clang-format clang-tidy cppcheck gcc g++ cc c++ clang clang++ ld as cpp javac java kotlinc scalac protoc buf "
    "flutter dart swift swiftc xcodebuild autoconf automake libtoolize configure pkg-config ldconfig sphinx-build "
    "mkdocs hugo jekyll docusaurus typedoc"
)
"""Programs that run code of the working tree, or read all of it, whatever their arguments are."""
SERVICES = word_set(
    # Versions, services and clouds: `rm` is a subcommand of many.
    "helm hg svn bzr fossil jj cvs p4 git gitk tig lazygit gh glab hub arc git-lfs "
    "docker docker-compose podman buildah skopeo nerdctl crictl ctr kubectl oc k9s kustomize minikube kind k3d "
    "istioctl terraform tofu terragrunt pulumi cdk sam serverless packer vault consul nomad aws gcloud gsutil bq az "
    "doctl linode-cli hcloud heroku fly flyctl vercel netlify wrangler firebase supabase railway rclone s3cmd s4cmd "
    "mc restic borg duplicity rsnapshot ipfs dvc mlflow wandb ollama redis-cli memcached mongo mongosh mysql "
    "mysqldump psql pg_dump pg_restore createdb dropdb sqlite3 influx cqlsh curl wget http https httpie xh aria2c "
    "ab wrk hey k6 vegeta youtube-dl yt-dlp ffmpeg ffprobe convert magick identify gpg gpg2 pass age sops "
    "ssh-keygen ssh-add ssh-copy-id ssh-keyscan scp sftp code cursor subl open xdg-open pbcopy pbpaste xclip xsel "
    "notify-send say claude parley tmux vim vi nvim nano emacs crontab atq atrm ip tc iptables nft man "
)
INERT = SHELL_TOOLS | SYSTEM | BUILDS | SERVICES
NAMES_NO_TARGET = (SYSTEM | BUILDS | SERVICES) - word_set(
    "curl wget http https httpie xh aria2c youtube-dl yt-dlp ffmpeg convert magick gpg gpg2 age sops scp sftp rclone "
    "s3cmd s4cmd mc aws gsutil gcloud restic borg duplicity rsnapshot ssh-keygen vim vi nvim nano emacs crontab script "
    "chattr setfacl visudo logger pg_dump mysqldump sqlite3 gcc g++ cc c++ clang clang++ ld as"
)
"""Programs that write no file that an argument names, or only in the way of a build."""
