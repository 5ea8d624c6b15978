"""What a rule for the beginning of a command does not approve: flags that make a reader write or run something, and
arguments that name files.

    find_concern(inner, patterns)    why the rule does not cover the command; empty if it does
    file_words(inner)                the arguments, and their parts, that may name a file to write

`Bash(git log:*)` allows reading, so `--output` is not covered, and `Bash(git config:*)` does not let git run a program.
A rule that names the flag (`Bash(sort -o:*)`) covers it.

See also: where an argument leads (permissions/operands.py).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from urllib.parse import unquote

import msgspec

from parley.permissions.base import word_set, word_table
from parley.permissions.git import config
from parley.permissions.shell import git_arguments
from parley.permissions.shell.arguments import Program, UnwrappedCommand, parse_arguments, program_table
from parley.permissions.shell.command_rules import matches
from parley.permissions.shell.interpreters import OPTIONS, SUBRUNNERS
from parley.permissions.shell.readers import READERS
from parley.permissions.shell.special_readers import CHECKS, edits_lines

UNKNOWN_FLAG = "The rule does not name {word}, and {name} may write or run something with it"
UNKNOWN_WORDS = "With these arguments {name} does more than read, and the rule does not name them"
RUNS = "{word} may name a program for {name} to run, and the rule does not name it"
GIT_UNKNOWN = "git {word} may run any program, and a rule for the beginning of the command does not say which"
RUNS_HOOKS = "git push would run the hooks of the repository {word}, and the rule does not name it"
SCRIPT = "The sed script {word} may write files or run commands"
DERIVES_NAME = "curl derives the name of the file it writes from {word}"
BACKUP = "sed would write its backup to another folder or under another name: {word}"

# Flags that neither write nor run anything, but are only accepted with a rule; `max_operands` here lifts the limit.
EXTRA_FLAGS = program_table(
    """
    grep: V
    id groups | max_operands=1:
    wc: - files0-from=
    diff: D:S:X:nv ed exclude-from= from-file= to-file= horizon-lines= ifdef= ignore-file-name-case
        ignore-matching-lines= line-format= no-ignore-file-name-case palette= rcs show-function-line= starting-file=
        suppress-blank-empty tabsize= unidirectional-new-file
    cmp: v
    du: - count-links files0-from=
    df: v no-sync sync
    file: Pcde:f:lm:psvS apple checking-printout debug exclude= exclude-quiet= files-from= list magic-file= no-buffer
        no-sandbox parameter= preserve-date special-files
    sort: T: files0-from= random-source= temporary-directory=
    column: E:L:O:T:VW:de:hil:p:r: keep-empty-lines output-width= table-columns-limit= table-header-repeat table-hide=
        table-name= table-noextreme= table-noheadings table-order= table-right= table-truncate= table-wrap= tree=
        tree-id= tree-parent=
    nl: - footer-numbering= header-numbering= join-blank-lines= line-increment= no-renumber number-separator=
        section-delimiter= starting-line-number=
    hostname: AIadfiy alias all-fqdns all-ip-addresses domain fqdn ip-address long nis yp
    tty: - quiet silent
    od: af traditional
    hexdump: L::e:f: color? format= format-file= one-byte-char one-byte-octal two-bytes-decimal two-bytes-hex
    strings: T:U:ds: data include-all-whitespace output-separator= target= unicode=
    free: V committed count= gibi kibi mebi pebi peta seconds= tebi tera
    cksum: w debug ignore-missing quiet status strict warn
    b2sum: l: length=
    shasum: 0Ua:hqsv algorithm=
    rg: hV auto-hybrid-regex block-buffered line-buffered no-line-buffered no-block-buffered dfa-size-limit= engine=
        field-context-separator= generate= ignore-file= ignore-file-case-insensitive include-zero no-crlf no-encoding
        no-ignore-dot no-ignore-exclude no-ignore-files no-ignore-global no-json no-mmap mmap no-multiline
        no-multiline-dotall no-pcre2 no-pre no-require-git no-search-zip no-text no-trim no-unicode null-data print0
        regex-size-limit= sort-files stop-on-nonmatch type-add= type-clear= no-context-separator no-fixed-strings
        no-follow no-invert-match no-stats no-sort-files no-byte-offset hyperlink-format= quiet
    tree: hH:T: gitfile= infofile= hintro= houtro= nolinks compress= hyperlink opt-toggle version help
    """
)
GIT_EXTRA_FLAGS = Program(
    short="rtl:WO:mcX:iTS:kfhe",
    long="no-pager no-mailmap mailmap use-mailmap no-use-mailmap ws-error-highlight= anchored= submodule? "
    "indent-heuristic no-indent-heuristic line-prefix= no-relative skip-to= rotate-to= output-indicator-new= "
    "output-indicator-old= output-indicator-context= patch-with-stat patch-with-raw irreversible-delete "
    "default-prefix expand-tabs? no-expand-tabs diff-merges= no-diff-merges remerge-diff dd show-linear-break? "
    "no-walk? do-walk reflog remove-empty grep-reflog= stdin exclude-first-parent-only since-as-filter= "
    "alternate-refs ignore-missing bisect left-right no-commit-id merge no-index base ours theirs exclude-hidden= "
    "maximal-only sparse dense in-commit-order no-graph clear-decorations decorate-refs-exclude= no-rename-empty "
    "rename-empty git-path= show-object-format? sq default= flags no-flags no-revs revs-only local-env-vars "
    "show-ref-format resolve-git-dir= prefix= sq-quote path-format= disambiguate= reverse contents= "
    "ignore-revs-file= score-debug color-by-age no-progress progress batch batch-check batch-all-objects "
    "allow-unknown-type follow-symlinks unordered filter= buffer debug exclude-existing? format= "
    "recurse-submodules with-tree= exclude-from= exclude-per-directory= object-only object-size-only group= "
    "numbered email exclude-standard no-exclude-standard max-depth= heading break show-forced-updates short "
    "branch null pathspec-from-file= pathspec-file-nul",
)
"""As EXTRA_FLAGS, for git subcommands that only read. Not `--output`, `--ext-diff`, `--textconv`, `--show-signature`
and `--open-files-in-pager`."""
GIT_WRITERS = ("branch", "tag", "config")
"""Subcommands in the tables of readers for which a rule also covers changes."""
GIT_VALUES = word_set("-C --git-dir --work-tree --namespace --super-prefix --attr-source --list-cmds")
GIT_ELSEWHERE = ("--config-env", "--git-dir")
"""Flags that select another configuration, and so other programs."""
GIT_UNTOUCHED = word_set("add commit push reset")
"""Subcommands that do not write the files that their arguments name."""
GIT_PLAIN = (
    frozenset(git_arguments.READERS)
    | GIT_UNTOUCHED
    | word_set(
        "am apply archive bisect bundle checkout checkout-index cherry cherry-pick check-attr check-mailmap "
        "check-ref-format clean clone column commit-graph commit-tree diff-files diff-index fast-export fetch "
        "fmt-merge-msg format-patch fsck gc hash-object help index-pack init interpret-trailers ls-remote mailinfo "
        "mailsplit merge merge-file merge-tree mktag mktree multi-pack-index mv notes pack-objects pack-refs patch-id "
        "prune prune-packed pull range-diff read-tree rebase reflog remote repack replace rerere restore revert rm "
        "sparse-checkout stage stash stripspace submodule switch symbolic-ref unpack-file update-index update-ref "
        "update-server-info var verify-pack whatchanged worktree write-tree"
    )
)
"""Subcommands that run no program named in their arguments, besides the flags and words below. A rule for all of git
covers only these; any other subcommand may come from PATH, or run what it is told to."""
GIT_RUNNERS = word_set("merge-index remote-ext remote-fd shell submodule--helper web--browse difftool--helper daemon")
"""Subcommands that run a program in their arguments: a rule for their beginning does not say which."""
GIT_STRATEGIES = re.compile(r"ort|recursive|resolve|octopus|ours|subtree")
GIT_CHANGES_TREE = word_set(
    "checkout restore switch reset stash merge pull rebase cherry-pick revert am apply clean rm mv read-tree "
    "checkout-index sparse-checkout submodule bisect unpack-objects"
)
"""Subcommands that write or delete files of the working tree, also such that the command does not name."""
GIT_RUNS = {
    "clone": ("uc", "upload-pack config template"),
    "init": ("", "template"),
    "fetch": ("", "upload-pack"),
    "pull": ("s", "upload-pack strategy"),
    "fetch-pack": ("", "upload-pack exec"),
    "ls-remote": ("", "upload-pack exec"),
    "push": ("", "receive-pack exec"),
    "send-pack": ("", "receive-pack exec"),
    "archive": ("", "exec remote"),
    "rebase": ("xs", "exec strategy"),
    "merge": ("s", "strategy"),
    **dict.fromkeys(("cherry-pick", "revert"), ("", "strategy")),
    "difftool": ("x", "extcmd"),
    "grep": ("O", "open-files-in-pager"),
    "send-email": ("", "to-cmd cc-cmd header-cmd sendmail-cmd smtp-server"),
    "instaweb": ("db", "httpd browser"),
    "daemon": ("", "access-hook"),
    "help": ("wi", "web info"),
    "submodule": ("", "template"),
}
"""Short and long flags whose value is a program, or a folder with programs."""
GIT_NESTED = word_set("foreach run view visualize filter-branch for-each-repo")
"""`git submodule foreach`, `git bisect run`, `git bisect view`, `git hook run`: a command follows."""
GIT_TRANSPORTS = word_set("clone fetch pull push ls-remote remote submodule archive fetch-pack send-pack")
GIT_HELPER = re.compile(r"(?:--[\w-]+=)?[A-Za-z0-9+.-]+::.*", re.DOTALL)
"""The address of a remote that git reaches with a program: `ext::sh`."""
GIT_PUSH_VALUES = word_set("-o --push-option --recurse-submodules --receive-pack --exec")
GIT_NESTING = word_set("submodule bisect hook filter-branch for-each-repo")
SAFE_KEY = re.compile(
    r"""user\..+ | author\..+ | committer\..+ | color\..+ | column\..+ | advice\..+ | pull\.(?:rebase|ff) | status\..+
    | feature\..+ | push\.(?:default|autosetupremote|followtags)
    | fetch\.(?:prune|prunetags|all|parallel|output|writecommitgraph)
    | init\.defaultbranch | log\.\w+ | rerere\.\w+ | rebase\.(?:autostash|autosquash|updaterefs|stat)
    | branch\.(?:autosetupmerge|autosetuprebase|sort) | branch\..+\.(?:remote|merge|rebase|description|pushremote)
    | core\.(?:autocrlf|eol|safecrlf|filemode|ignorecase|quotepath|longpaths|abbrev|symlinks|commentchar
      |precomposeunicode|preloadindex|untrackedcache|whitespace|bare|logallrefupdates|compression|bigfilethreshold|sparsecheckout)
    | merge\.(?:conflictstyle|ff|stat|renames|renamelimit|log) | commit\.(?:gpgsign|verbose|cleanup|status)
    | tag\.(?:gpgsign|sort)
    | diff\.(?:algorithm|renames|renamelimit|colormoved|mnemonicprefix|noprefix|context|submodule)
    | gc\.(?:auto|autodetach) | pack\.\w+ | index\.\w+ | http\.(?:postbuffer|lowspeedlimit|lowspeedtime|version)
    | help\.autocorrect | stash\.\w+ | blame\.\w+ | grep\.(?:linenumber|column|patterntype|extendedregexp)
    | interactive\.singlekey | transfer\.fsckobjects | versionsort\..+ | worktree\.\w+ | checkout\.\w+
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""Configuration that names no program, file or server."""
PROGRAM_KEY = re.compile(r"core\.(?:pager|editor)|sequence\.editor|pager\.\w+", re.IGNORECASE)
HARMLESS_PROGRAM = re.compile(r"cat|true|false|:|")
CONFIG = Program(
    short="lzf:e",
    long="get get-all get-regexp get-urlmatch list local global system worktree show-origin show-scope name-only null "
    "type= default= bool int path file= blob= bool-or-int bool-or-str expiry-date add replace-all unset unset-all all "
    "value= fixed-value includes no-includes no-type append comment= regexp show-names url=",
)
CONFIG_READS = ("get", "get-all", "get-regexp", "get-urlmatch", "list", "l")
CONFIG_WRITES = ("add", "replace-all", "unset", "unset-all", "append")
GPG = re.compile(r"%[-+ ]?G")

SED = Program(
    short="nErsuzbi::e:l:",
    long="quiet silent regexp-extended in-place? expression= line-length= separate unbuffered null-data posix debug "
    "sandbox follow-symlinks binary version help",
)

PACKERS = re.compile(r"(?:gzip|pigz|p?bzip2|lbzip2|xz|pixz|pxz|lzma|p?lzip|lzop|lz4|zstd|zstdmt|brotli)(?: -\w+)*")
SSH = re.compile(r"ssh(?: -[pil] ?[\w./@-]+)*")
SSH_CLIENT = Program(short="46AaCfGgKkMNnqsTtVvXxYyB:b:c:D:e:i:J:L:l:m:O:o:P:p:Q:R:S:W:w:")
SSH_PROGRAMS = {
    "ssh": SSH_CLIENT,
    "autossh": msgspec.structs.replace(SSH_CLIENT, short=f"{SSH_CLIENT.short}M:"),
    "scp": Program(short="346ABCOpqRrsTvc:i:J:l:o:P:X:"),
    "sftp": Program(short="46AaCfNpqrvB:c:i:J:l:o:P:R:X:"),
    "ssh-copy-id": Program(short="fnsxi::o:p:"),
    "sshfs": Program(short="Cdfhsp:V"),
}
"""The flags that name no program, library, configuration or file to write."""
SSH_OPTION = re.compile(
    r"""[ \t]*(?: AddKeysToAgent | AddressFamily | BatchMode | Bind(?:Address|Interface) | CheckHostIP | Ciphers
    | Compression | ConnectionAttempts | ConnectTimeout | Control(?:Master|Path|Persist)
    | (?:Dynamic|Local|Remote)Forward | EscapeChar | ExitOnForwardFailure | FingerprintHash
    | Forward(?:Agent|X11|X11Trusted) | GatewayPorts | GSSAPI(?:Authentication|DelegateCredentials) | HashKnownHosts
    | HostKey(?:Algorithms|Alias) | HostName | IdentitiesOnly | IdentityFile | IPQoS | KexAlgorithms | LogLevel | MACs
    | NumberOfPasswordPrompts | Port | (?:Password|Pubkey|KbdInteractive|ChallengeResponse|Hostbased)Authentication
    | PreferredAuthentications | ProxyJump | PubkeyAccepted(?:Algorithms|KeyTypes) | RekeyLimit | RequestTTY | SendEnv
    | ServerAlive(?:CountMax|Interval) | SessionType | SetEnv | StdinNull | StrictHostKeyChecking | TCPKeepAlive
    | UpdateHostKeys | User | VisualHostKey
    )[ \t]*[= \t][ \t]*[\w.,@:/+~%*=-]+ | (?:User|Global)KnownHostsFile=/dev/null""",
    re.VERBOSE | re.IGNORECASE,
)
"""Values of `-o` that are harmless. ssh also reads a keyword after `=` and in quotes, so no other form is accepted."""
HARMLESS_VALUES = {**dict.fromkeys(("tar", "bsdtar", "gtar", "star"), PACKERS), "rsync": SSH}
"""Values of flags that name a program (`OPTIONS`) that ask nothing; HARMLESS_PROGRAM for the other programs."""
SUBCOMMANDS_RUN = word_set("perf trace-cmd ip machinectl launchctl tmux i3-msg swaymsg hyprctl xdotool consul")
"""Programs with subcommands (`SUBRUNNERS`) that run a command of this machine. Those of containers, package managers
and environments are approved with the program."""
LETTERS = re.compile(r"[A-Za-z0-9#:]+")
"""The flags in one word; the rest of the word is a value."""
TAR_RUNS = re.compile(r"[A-Za-z]*[IF]")
"""`tar xIf program archive`: the first argument may be flags without a dash."""
ZIP_RUNS = re.compile(r"-\w*TT.*", re.DOTALL)
OWN_FLAGS = ("--checkpoint", "--strip")
"""Separate flags that look like an abbreviation of a flag above."""

SEPARATORS = re.compile(r"[=:@,]")
QUOTED = re.compile(r"['\"]([^'\"]+)['\"]")
URL = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*://(?!(?:.*/)?\.\.(?:/|$))", re.DOTALL)
TAKES_CODE = re.compile(
    r"[gmn]?awk|(?:perl|python|ruby|php|lua)[\d.]*|node|nodejs|deno|bun|ed|ex|n?vim?|sqlite3|psql|mysql|mariadb|gnuplot"
)
CODE_GAP = re.compile(r"[\s|;]+")
EXCLUDES = re.compile(r"--(?:extend-|per-file-)?(?:exclude|ignore|skip|omit)[\w-]*=")
EXCLUDERS = word_set(
    "tar bsdtar rsync ruff black isort flake8 mypy pylint bandit eslint prettier pytest py.test cloc tokei ag ack fd "
    "fdfind codespell rclone restic borg du aws gsutil gcloud"
)
EXCLUDE_NEXT = word_set(
    "--exclude --exclude-dir --exclude-from --exclude-path --extend-exclude --ignore --ignore-dir --ignore-pattern "
    "--ignore-path --ignore-glob --skip --omit --deselect"
)
INPUTS = word_table(
    """
    ssh scp sftp ssh-add: -i
    docker docker-compose podman: -f --file --env-file
    kubectl helm: -f --filename --kubeconfig --values
    pre-commit: -c --config
    act: -W --workflows -e --eventpath
    git: -m --message
    """
)
"""Flags whose next argument is a file that is read, or a text."""
ONLY_READ = word_set("more shellcheck yamllint actionlint hadolint jq ps echo sleep")
"""Programs without a flag that writes; the tables do not know them, or not all their arguments."""
CHECKED_PROGRAMS = frozenset({*READERS, *OPTIONS, *SSH_PROGRAMS, *SUBCOMMANDS_RUN, "git", "sed", "date", "xxd"})
BACKUPS = word_set("cp mv ln install")
UNPACKERS = word_set(
    "gzip gunzip pigz unpigz xz unxz bzip2 bunzip2 lzma unlzma lzip lz4 unlz4 zstd unzstd brotli compress "
    "uncompress lzop"
)
QUERY = re.compile(r"[?#]")
PERL_BACKUP = re.compile(r"-[A-Za-z]*?i(\S+)")
CURL_PATTERN = re.compile(r"(?!-)[^\s?]*[\[{].*", re.DOTALL)
MAX_LETTERS = 256
"""Flags in one word that are looked at. LONG_CLUSTER is a word with more."""
LONG_CLUSTER = re.compile(rf"-[A-Za-z0-9#:]{{{MAX_LETTERS}}}")
MAX_PATH_CHARACTERS = 4096
MAX_SSH_FLAGS = 64
MAX_SHOWN = 100


def shorten(word: str) -> str:
    """A word as shown in a reason."""
    return word if len(word) <= MAX_SHOWN else f"{word[:MAX_SHOWN]}..."


def find_rule_words(patterns: Sequence[str], text: str) -> frozenset[str]:
    """The words of the rules that match a command."""
    matching = (pattern.strip() for pattern in patterns if matches(pattern, text))
    return frozenset(word for pattern in matching for word in pattern.removesuffix(":*").replace("*", " ").split())


def find_concern(inner: UnwrappedCommand, patterns: Sequence[str]) -> str:
    name = inner.name
    if cluster := next(filter(LONG_CLUSTER.match, inner.argv), None):
        return UNKNOWN_FLAG.format(word=shorten(cluster), name=name)
    if name not in CHECKED_PROGRAMS:
        return ""
    rule_words = find_rule_words(patterns, " ".join(inner.words))
    if name == "git":
        return _find_git_concern(inner.argv, rule_words)
    if name == "sed":
        return _find_sed_concern(inner.argv, rule_words)
    if name == "curl" and (derived := _find_curl_pattern(inner.argv)) and derived not in rule_words:
        return DERIVES_NAME.format(word=shorten(derived))
    if name == "zip" and (word := next(filter(ZIP_RUNS.fullmatch, inner.argv), None)) and word not in rule_words:
        return RUNS.format(word=shorten(word), name=name)
    if name == "tar" and TAR_RUNS.match(" ".join(inner.argv[1:2])) and inner.argv[1] not in rule_words:
        return RUNS.format(word=shorten(inner.argv[1]), name=name)
    if name in SSH_PROGRAMS:
        return _find_ssh_concern(inner.argv, name, rule_words)
    if name in OPTIONS:
        harmless = HARMLESS_VALUES.get(name, HARMLESS_PROGRAM)
        flags = _flags(inner.argv, 1, *_split_options(name))
        word = next((word for word, value in flags if not harmless.fullmatch(value)), None)
        if word is not None and not _is_named(word, rule_words):
            return RUNS.format(word=shorten(word), name=name)
    if name in SUBCOMMANDS_RUN:
        word = next((word for word in inner.argv[1:] if word in SUBRUNNERS[name] and word not in rule_words), None)
        return "" if word is None else RUNS.format(word=shorten(word), name=name)
    if name in ("date", "xxd"):
        given = [word for word in inner.argv[1:] if word[:1] == "-"]
        are_named = bool(given) and all(_is_named(word, rule_words) for word in given)
        reads = CHECKS[name](inner.argv, ()) is not None
        return "" if reads or are_named else UNKNOWN_WORDS.format(name=name)
    program = READERS.get(name)
    return (
        ""
        if program is None
        else _find_reader_concern(
            inner.argv, 1, name, _merge_programs(program, EXTRA_FLAGS.get(name, Program())), rule_words
        )
    )


def _find_reader_concern(
    argv: Sequence[str], begin: int, name: str, program: Program, rule_words: Collection[str]
) -> str:
    """Why the arguments are not those of a program that only reads."""
    if parse_arguments(program, argv, begin) is not None:
        return ""
    words = argv[begin : argv.index("--")] if "--" in argv else argv[begin:]
    unknown = [
        _drop_known_letters(program, word)
        for word in words
        if word[:1] == "-" and word != "-" and not _is_known_flag(program, word)
    ]
    if unknown and all(_is_named(word, rule_words) for word in unknown):
        return ""
    word = next((word for word in unknown if not _is_named(word, rule_words)), None)
    return UNKNOWN_WORDS.format(name=name) if word is None else UNKNOWN_FLAG.format(word=shorten(word), name=name)


def _is_known_flag(program: Program, word: str) -> bool:
    alone = msgspec.structs.replace(program, min_operands=0, max_operands=None)
    return parse_arguments(alone, (word,), 0) is not None or parse_arguments(alone, (word, "0"), 0) is not None


def _drop_known_letters(program: Program, word: str) -> str:
    """A word with flags from the first unknown one on: `-o` for `-ro`."""
    begin = 1
    while word[:2] != "--" and begin + 1 < len(word) and _is_known_flag(program, f"-{word[begin]}"):
        begin += 1
    return f"-{word[begin:]}"


def _merge_programs(program: Program, more: Program) -> Program:
    short = more.short + program.short  # for a letter that is in both, the table wins
    max_operands = program.max_operands if more.max_operands is None else None
    return msgspec.structs.replace(program, short=short, long=f"{more.long} {program.long}", max_operands=max_operands)


# ssh


def _find_ssh_concern(argv: Sequence[str], name: str, rule_words: Collection[str]) -> str:
    program = SSH_PROGRAMS[name]
    if program.short.startswith(SSH_CLIENT.short):
        argv = _drop_remote_command(program, argv)
    found = parse_arguments(program, argv)
    if found is None and (concern := _find_reader_concern(argv, 1, name, program, rule_words)):
        return concern
    options = [*_flags(argv, 1, "oJ", "")] if found is None else found.flags
    values = [value for flag, value in options if flag[:2] in ("o", "-o")]
    values += [f"ProxyJump={value}" for flag, value in options if flag[:2] in ("J", "-J")]
    word = next((value for value in values if not SSH_OPTION.fullmatch(value) and value not in rule_words), None)
    return "" if word is None else RUNS.format(word=shorten(word), name=name)


def _drop_remote_command(program: Program, argv: Sequence[str]) -> Sequence[str]:
    """The arguments without the command for the other machine, which begins at the second operand."""
    # ssh reads flags after the host even if `--` came before it.
    words = ["-v" if word == "--" else word for word in argv]
    for end in range(3, min(len(words), MAX_SSH_FLAGS) + 1):
        found = parse_arguments(program, words[:end])
        if found is not None and len(found.operands) == 2:
            return words[: end - 1]
    return words


# git


def _find_git_concern(argv: Sequence[str], rule_words: Collection[str]) -> str:
    index = 1
    while index < len(argv) and argv[index].startswith("-"):
        word = argv[index]
        flag = word.partition("=")[0]
        if word == "-c":
            key, _, value = (argv[index + 1] if index + 1 < len(argv) else "").partition("=")
            if not _is_safe_setting(key, value) and not {key, f"{key}={value}"} & set(rule_words):
                return RUNS.format(word=shorten(key), name="git")
        elif (word.startswith("--exec-path=") or flag in GIT_ELSEWHERE) and not _is_named(word, rule_words):
            return RUNS.format(word=shorten(word), name="git")
        index += 2 if word == "-c" or word in GIT_VALUES or word == "--config-env" else 1
    rest = argv[index:]
    if not rest:
        return ""
    sub, name = rest[0], f"git {rest[0]}"
    # A rule for all commands also covers unknown programs.
    if sub in GIT_RUNNERS or (rule_words and sub not in GIT_PLAIN and sub not in rule_words):
        return GIT_UNKNOWN.format(word=shorten(sub))
    helper = next(filter(GIT_HELPER.fullmatch, rest[1:]), None) if sub in GIT_TRANSPORTS else None
    if helper is not None and helper not in rule_words:
        return RUNS.format(word=shorten(helper), name=name)
    target = find_push_target(rest[1:]) if sub == "push" else ""
    if _is_local_push(target) and target not in rule_words:
        return RUNS_HOOKS.format(word=shorten(target))
    if sub == "config":
        return _find_config_concern(rest, rule_words)
    if sub in GIT_NESTING and (nested := next((word for word in rest[:6] if word in GIT_NESTED), None)):
        return "" if nested in rule_words else RUNS.format(word=shorten(nested), name="git")
    short, long = GIT_RUNS.get(sub, ("", ""))
    for word, value in _flags(rest, 1, short, long):
        if sub == "clone" and word.startswith(("-c", "--config")) and _is_safe_setting(*_split_pair(value)):
            continue
        if GIT_STRATEGIES.fullmatch(value) and word.startswith(("-s", "--s")):
            continue
        if not _is_named(word, rule_words):
            return RUNS.format(word=shorten(word), name=name)
    if any(GPG.search(word) for word in rest):
        return RUNS.format(word=shorten("%G"), name="git")
    program = git_arguments.READERS.get(sub)
    if program is None or sub in GIT_WRITERS:
        return ""
    return _find_reader_concern(argv, index + 1, name, _merge_programs(program, GIT_EXTRA_FLAGS), rule_words)


def find_push_target(rest: Sequence[str]) -> str:
    """The repository in the arguments of `git push`; empty if there is none."""
    skips, repository = False, ""
    for index, word in enumerate(rest):
        if not skips and word[:1] != "-":
            return word
        # A long flag may be abbreviated. A repository among the operands counts more than that of `--repo`.
        if word.startswith("--rep"):
            repository = word.partition("=")[2] or " ".join(rest[index + 1 : index + 2])
            skips = "=" not in word
        else:
            skips = word == "-o" or (len(word) > 3 and any(flag.startswith(word) for flag in GIT_PUSH_VALUES))
    return repository


def _is_local_push(target: str) -> bool:
    """Whether a push goes to a path: the hooks of that repository run."""
    return (
        target in (".", "..") or ("/" in target and config.is_local_url(target)) or target.lower().startswith("file:")
    )


def _find_config_concern(rest: Sequence[str], rule_words: Collection[str]) -> str:
    """`git config` may set keys that name no program; the rule must name any other key."""
    found = parse_arguments(CONFIG, rest)
    if found is None:
        return UNKNOWN_WORDS.format(name="git config")
    operands = list(found.list_operands(rest))
    action = operands.pop(0) if operands and operands[0] in ("list", "get", "set", "unset", "edit") else ""
    if action in ("list", "get") or found.has_flag(*CONFIG_READS):
        return ""
    if action == "edit" or found.has_flag("e") or not operands or "section" in operands[0]:
        return "" if action in rule_words else UNKNOWN_WORDS.format(name="git config")
    if len(operands) == 1 and not action and not found.has_flag(*CONFIG_WRITES):
        return ""  # it prints the value
    key, value = operands[0], " ".join(operands[1:2])
    return "" if key in rule_words or _is_safe_setting(key, value) else RUNS.format(word=shorten(key), name="git")


def _is_safe_setting(key: str, value: str) -> bool:
    if PROGRAM_KEY.fullmatch(key):
        return HARMLESS_PROGRAM.fullmatch(value) is not None
    if config.find_local_remote(config.make_entry(key, value)) is not None:
        return False
    return SAFE_KEY.fullmatch(key) is not None


def _split_pair(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    return key, value


# sed


def _find_sed_concern(argv: Sequence[str], rule_words: Collection[str]) -> str:
    found = parse_arguments(SED, argv)
    if found is None:
        return _find_reader_concern(argv, 1, "sed", SED, rule_words)
    scripts = found.values("e", "expression") or found.list_operands(argv)[:1]
    word = next((script for script in scripts if not edits_lines(script) and script not in rule_words), None)
    if word is not None:
        return SCRIPT.format(word=shorten(word))
    suffix = next((value for value in found.values("i", "in-place") if re.search(r"[/*]", value)), None)
    return "" if suffix is None else BACKUP.format(word=shorten(suffix))


# Arguments that name files.


def file_words(inner: UnwrappedCommand, *, sends: bool = False) -> Iterator[tuple[str, str]]:
    """The arguments that may name a file to write, each with a name in it.

    With `sends`, the output of the command may become arguments of another one.
    """
    name, argv = inner.name, inner.argv
    if not sends and writes_no_operand(inner):
        return
    yield from ((word, each) for word, each in derived_names(inner) if each)
    skips, only_operands = False, False
    for index, word in enumerate(argv[1:], 1):
        if skips:
            skips = False
        elif word.isalnum():
            yield word, word
        elif not only_operands and URL.match(word):
            continue
        elif word == "--":
            only_operands = True
        elif name == "zip" and word in ("-x", "--exclude"):
            return
        elif word in INPUTS.get(name, ()) or (name in EXCLUDERS and word in EXCLUDE_NEXT):
            skips = True
        elif index not in inner.globs and not EXCLUDES.match(word):
            quoted = [*QUOTED.findall(word), *CODE_GAP.split(word)] if TAKES_CODE.fullmatch(name) else ()
            found = [*_names_in_word(word, only_operands), *(text.strip(" ><|+&") for text in quoted)]
            # The first name with a problem is reported, so the order must not depend on hashes.
            yield from ((word, each) for each in dict.fromkeys(found) if each)


def derived_names(inner: UnwrappedCommand) -> Iterator[tuple[str, str]]:
    """File names that a program derives from its arguments: backups, unpacked files, downloads."""
    name, words = inner.name, inner.argv[1:]
    if name in BACKUPS:
        suffixes = dict.fromkeys(value for _, value in _flags(inner.argv, 1, "S", "suffix"))
        yield from ((word, posixpath.basename(word) + suffix) for suffix in suffixes for word in words)
    elif name == "perl":
        suffixes = dict.fromkeys(found[1] for word in words if (found := PERL_BACKUP.fullmatch(word)))
        yield from ((word, word + suffix) for suffix in suffixes for word in words)
    elif name in UNPACKERS:
        yield from ((word, word.rpartition(".")[0]) for word in words)
    elif name == "wget" or (name == "curl" and any(_flags(inner.argv, 1, "O", "remote-name remote-name-all"))):
        urls = (QUERY.split(word, maxsplit=1)[0] for word in words if word[:1] != "-")
        whole = name == "wget" and any(_flags(inner.argv, 1, "rxm", "recursive force-directories mirror"))
        yield from ((url, unquote(url.partition("://")[2] if whole else posixpath.basename(url))) for url in urls)


def _find_curl_pattern(argv: Sequence[str]) -> str:
    """The argument with a curl pattern from which it derives a file name: `-O http://x/[a-c]`, `-o '#1'`."""
    value = next((value for _, value in _flags(argv, 1, "o", "output") if "#" in value), "")
    # `-w '%output{name}'` writes to that file; `-w @name` reads the text with it.
    formats = (value for _, value in _flags(argv, 1, "w", "write-out") if "%output" in value or value[:1] == "@")
    value = value or next(formats, "")
    if value or not any(_flags(argv, 1, "O", "remote-name remote-name-all")):
        return value
    return next((word for word in argv[1:] if "://" in word and CURL_PATTERN.fullmatch(word)), "")


def writes_no_operand(inner: UnwrappedCommand) -> bool:
    """Whether the command writes none of the files that its arguments name."""
    name, argv = inner.name, inner.argv
    if name in ONLY_READ:
        return True
    if name == "sed":
        found = parse_arguments(SED, argv)
        return found is not None and not found.has_flag("i", "in-place")
    if name != "git":
        program = READERS.get(name)
        return (
            program is not None
            and parse_arguments(_merge_programs(program, EXTRA_FLAGS.get(name, Program())), argv) is not None
        )
    index = 1
    while index < len(argv) and argv[index].startswith("-"):
        index += 2 if argv[index] == "-c" or argv[index] in GIT_VALUES else 1
    sub = argv[index] if index < len(argv) else ""
    if sub == "restore":
        return bool({"--staged", "-S"} & set(argv)) and not {"--worktree", "-W", "-SW", "-WS"} & set(argv)
    program = git_arguments.READERS.get(sub)
    reads = (
        program is not None
        and sub not in GIT_WRITERS
        and parse_arguments(_merge_programs(program, GIT_EXTRA_FLAGS), argv, index + 1)
    )
    return sub in GIT_UNTOUCHED or bool(reads)


def _names_in_word(word: str, only_operands: bool) -> Iterator[str]:
    """The names in a word: itself, the value of a flag, both halves of `a=b` and `a:b`."""
    if only_operands or word[:1] != "-":
        yield word
    elif word[:2] != "--" and len(word) <= MAX_LETTERS + MAX_PATH_CHARACTERS:
        yield from (word[index:] for index in range(2, min(len(word), MAX_LETTERS)))
    if SEPARATORS.search(word):
        yield from (piece for piece in SEPARATORS.split(word) if piece[:1] != "-")
        yield from (word.partition(joint)[2] for joint in "=:@,")


# Flags.


def _flags(argv: Sequence[str], begin: int, short: str, long: str) -> Iterator[tuple[str, str]]:
    """The words that are one of these flags, also abbreviated or in a cluster, each with its value.

    In a cluster the word begins with the flag: `-I` for `-cvI`. A long flag may have one dash: `-wrapper`.
    """
    known = long.split()
    for index in range(begin, len(argv)):
        word, following = argv[index], argv[index + 1] if index + 1 < len(argv) else ""
        if word == "--":
            return
        flag, equals, value = word.partition("=")
        if flag[:2] == "--" and flag not in OWN_FLAGS and any(name.startswith(flag[2:]) for name in known):
            yield word, value if equals else following
        elif word[:1] == "-" and word[1:2] != "-":
            letters = LETTERS.match(word, 1)
            at = next((at for at, letter in enumerate(letters[0] if letters else "", 1) if letter in short), 0)
            if at:
                yield f"-{word[at:]}", word[at + 1 :] or following
        if word[:1] == "-" and flag in known:
            yield word, value if equals else following


@lru_cache(maxsize=64)
def _split_options(name: str) -> tuple[str, str]:
    """The short and the long flags of a program that name a program to run."""
    short = "".join(flag[1:] for flag in OPTIONS[name] if len(flag) == 2)
    return short, " ".join(flag.removeprefix("--") for flag in OPTIONS[name] if len(flag) > 2)


def _is_named(word: str, rule_words: Collection[str]) -> bool:
    flag = word.partition("=")[0] if word[:2] == "--" else word[:2]
    return any(
        named in (word, flag) or named.startswith(f"{flag}=") for named in rule_words if named not in ("-", "--")
    )
