"""The git commands that only read, the files they name, and which of them print file contents.

A flag that is not in the row of its subcommand is unknown. So `-c`, `-C`, `--exec-path`, `--output`, `--ext-diff`,
`--textconv`, `-O`, `--upload-pack` and `--show-signature` are never accepted, nor are their abbreviations, and
subcommands that access a remote have no row. Placeholders in formats must be known: `%G?` runs gpg.

See also: the repository that git finds, and its configuration (git/repository.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from parley.permissions.base import word_set
from parley.permissions.git import config
from parley.permissions.shell.arguments import (
    ParsedArguments,
    Program,
    accepts_globs,
    parse_arguments,
    program_table,
    read_operands,
)
from parley.protocol.base import Struct

GLOBAL_FLAGS = ("--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs", "--no-replace-objects")

DIFF_SHORT = "puswbaRzU:G:S:M::C::B::D"
DIFF_LONG = (
    "patch no-patch stat? numstat shortstat summary dirstat? name-only name-status unified= raw minimal patience "
    "histogram diff-algorithm= color? no-color color-words? word-diff? word-diff-regex= find-renames? find-copies? "
    "no-renames check full-index abbrev? no-abbrev binary diff-filter= pickaxe-all pickaxe-regex relative? text "
    "ignore-space-at-eol ignore-cr-at-eol ignore-space-change ignore-all-space ignore-blank-lines "
    "inter-hunk-context= function-context exit-code quiet no-ext-diff no-textconv ignore-submodules? src-prefix= "
    "dst-prefix= no-prefix color-moved? compact-summary cc combined-all-paths ita-invisible-in-index"
)
LOG_SHORT = DIFF_SHORT + "n:iEFPgmcL:"
LOG_LONG = (
    f"{DIFF_LONG} oneline graph all branches? tags? remotes? glob= exclude= decorate? no-decorate decorate-refs= "
    "max-count= skip= since= after= until= before= author= committer= grep= all-match invert-grep regexp-ignore-case "
    "extended-regexp fixed-strings perl-regexp merges no-merges min-parents= max-parents= first-parent not cherry "
    "cherry-pick cherry-mark left-right left-only right-only walk-reflogs reverse follow full-diff full-history "
    "simplify-merges simplify-by-decoration ancestry-path? date-order author-date-order topo-order date= "
    "relative-date parents children source log-size abbrev-commit no-abbrev-commit pretty? format= encoding= "
    "no-notes notes? show-pulls boundary count"
)
DIFF = Program(short=DIFF_SHORT, long=f"{DIFF_LONG} cached staged merge-base")
LOG = Program(short=LOG_SHORT, long=LOG_LONG, number_flags=True)
REF_LONG = "contains= no-contains= merged= no-merged= points-at= sort= format= column? no-column color? no-color"

READERS = {
    **program_table(
        """
    status: sbvzu:: short branch verbose porcelain? long untracked-files? ignored? column? no-column ahead-behind
        no-ahead-behind renames no-renames find-renames? show-stash ignore-submodules?
    rev-parse | operands=text: q show-toplevel git-dir absolute-git-dir git-common-dir abbrev-ref? short? verify quiet
        symbolic symbolic-full-name is-inside-work-tree is-inside-git-dir is-bare-repository is-shallow-repository
        show-prefix show-cdup all branches? tags? remotes? show-superproject-working-tree
    ls-files: cdmokstuvzx: cached deleted modified others ignored stage unmerged killed exclude= exclude-standard
        full-name error-unmatch abbrev? eol directory no-empty-directory deduplicate
    ls-tree: drtlz name-only name-status full-name full-tree long abbrev? format=
    blame: wlsetfnbpcL:M::C:: root show-stats line-porcelain porcelain incremental show-name show-number show-email
        abbrev? date= ignore-rev= color-lines
    describe | operands=text: - all tags long always dirty? broken? abbrev? match= exclude= exact-match first-parent
        contains candidates=
    cat-file | operands=text max_operands=2: tspe
    merge-base | operands=text: a all is-ancestor octopus independent fork-point
    name-rev | operands=text: - tags refs= exclude= all name-only no-undefined always
    show-ref | operands=text: sdq head heads tags dereference hash? verify quiet abbrev?
    count-objects | max_operands=0: vH verbose human-readable
    check-ignore: vnqz verbose non-matching quiet no-index
    grep | operands=pattern number_flags pattern_flags=e,f recursive_flags=* file_flags=f:
        iIwvnlLchHqoEFPGWpae:A:B:C:m:f: ignore-case word-regexp invert-match line-number files-with-matches name-only
        files-without-match count quiet only-matching extended-regexp fixed-strings perl-regexp basic-regexp
        function-context show-function text untracked cached no-index break heading color? no-color column max-depth=
        and or not all-match after-context= before-context= context= max-count= threads= full-name null recursive
        no-recursive
    config | operands=text max_operands=2: lz get get-all get-regexp list local global system worktree show-origin
        show-scope name-only null type= default= bool int path
    version | max_operands=0: - build-options
    """
    ),
    "log": LOG,
    "show": LOG,
    "diff": DIFF,
    "diff-tree": Program(short=DIFF_SHORT + "rtmc", long=f"{DIFF_LONG} no-commit-id root pretty? format="),
    "shortlog": Program(short="snec", long=f"{LOG_LONG} numbered summary email committer"),
    "branch": Program(
        short="avr", long=f"list all remotes verbose show-current ignore-case no-abbrev abbrev? {REF_LONG}"
    ),
    "tag": Program(short="ln::i", long=f"list ignore-case {REF_LONG}"),
    "rev-list": Program(short=LOG_SHORT, long=f"{LOG_LONG} objects disk-usage? header timestamp", number_flags=True),
    "for-each-ref": Program(long=f"count= ignore-case {REF_LONG}", operands="text"),
}

# Subcommands that only read with one of these words after them.
NESTED = {
    "stash list": LOG,
    "stash show": LOG,
    "reflog show": LOG,
    "worktree list": Program(short="vz", long="porcelain verbose", max_operands=0),
    "remote get-url": Program(long="push all", operands="text", min_operands=1, max_operands=1),
}
# Subcommands that create what their operand names, unless a flag makes it a pattern.
LISTS = {"branch": ("list",), "tag": ("list", "l")}
# Not these, which also print credentials.
CONFIG_LISTS = ("l", "list", "get-regexp")
CONFIG_READS = ("get", "get-all")
ALONE = frozenset([("remote",), ("remote", "-v"), ("remote", "--verbose"), ("reflog",)])

# Formats. Git skips an unknown placeholder and continues right after the `%`, so every `%` must be matched.
ARGUMENT = r"\((?:[^%()]|%x[0-9A-Fa-f]{2}|%n|%%)*\)"
COMMIT_FORMAT = re.compile(
    r"(?:[^%]|%%|%[-+ ]?(?:[HhTtPp]|[ac](?:[nNeElLdDrtiIsh])|[dDSesfbBNmn]|g[DdnNeEs]|x[0-9A-Fa-f]{2}"
    rf"|C(?:red|green|blue|reset|{ARGUMENT})|w{ARGUMENT}|(?:<\||[<>]|>>|><|>\||>>\|)\([^%()]*\)"
    r"|\((?:describe|trailers|decorate)(?::(?:[^%()]|%x[0-9A-Fa-f]{2}|%n|%%)*)?\)))*",
    re.DOTALL,
)
ATOM = (
    r"\*?(?:refname|objecttype|objectsize|objectname|deltabase|tree|parent|numparent|object|type|tag|author|authorname|"
    r"authoremail|authordate|committer|committername|committeremail|committerdate|tagger|taggername|taggeremail|"
    r"taggerdate|creator|creatordate|subject|body|contents|trailers|upstream|push|HEAD|color|align|if|then|else|end|"
    r"symref|worktreepath|ahead-behind|is-base|describe|objectmode|path|flag|version)(?::[^()%]*)?"
)
REF_FORMAT = re.compile(rf"(?:[^%]|%%|%x?[0-9A-Fa-f]{{2}}|%n|%\({ATOM}\))*", re.DOTALL)
SORT = re.compile(rf"-?(?:(?:version|v):)?{ATOM}")
REF_FORMATS = frozenset(["branch", "tag", "for-each-ref", "ls-tree"])

# Contents.
PATCH_FLAGS = word_set(
    "p u patch U unified binary c cc m W function-context word-diff word-diff-regex color-words check L G S "
    "combined-all-paths text a"
)
"""Flags that print lines of files, or reveal their contents."""
NAME_FLAGS = word_set(
    "stat numstat shortstat summary dirstat name-only name-status raw no-patch s quiet compact-summary"
)
"""Flags that print names or numbers instead of lines."""
PRINTS_BY_ITSELF = word_set("diff show stash-show")
PRINTS_IF_ASKED = word_set("log reflog stash-list diff-tree")
PRINTS_NOTHING = word_set(
    "branch tag rev-parse ls-files ls-tree describe merge-base name-rev for-each-ref show-ref count-objects "
    "check-ignore config version remote worktree init clone fetch pull push add rm mv switch merge rebase cherry-pick "
    "revert reset restore checkout clean gc prune repack fsck maintenance help bisect submodule notes symbolic-ref "
    "update-ref update-index ls-remote var check-ref-format check-attr check-mailmap write-tree read-tree commit-tree "
    "hash-object mktag mktree sparse-checkout pack-refs prune-packed verify-pack verify-commit verify-tag stripspace "
    "column interpret-trailers credential shortlog rev-list blame status commit stash"
)
HUNKS = re.compile(r"-[a-ln-zA-Z]*p[a-zA-Z]*|-i|--pat.*|--int.*")
CURRENT_PATCH = re.compile(r"--show-c.*")
CHOOSES_HUNKS = word_set("add checkout restore reset commit stash")
VERBOSE = re.compile(r"-[a-ln-zA-Z]*v[a-zA-Z]*|--verb.*")
"""With this flag, `status` and `commit` print the changes to be committed."""
VALUES = word_set("-C -c --git-dir --work-tree --namespace --exec-path --super-prefix --config-env --attr-source")
"""Options before the subcommand that take a value; all but -C and -c also accept it after `=`."""
REVISION = re.compile(r"\{[^}]*\}")
WILD = re.compile(r"[*?\[\\]")
MAGIC = re.compile(r":\(([^)]*)\)|:([!^/]+):?")


class GitCall(Struct, frozen=True):
    """The arguments of a git command, split at its subcommand."""

    subcommand: str
    begin: int
    """The position of the first argument of the subcommand."""
    folders: tuple[str, ...] = ()
    """The values of `-C`, in order."""
    settings: tuple[str, ...] = ()
    """The values of `-c`."""
    unusual_option: str = ""
    """An option that is unknown, or that selects another repository or other programs."""


def parse_git_call(words: Sequence[str]) -> GitCall:
    index, folders, settings, unusual = 1, [], [], ""
    while index < len(words) and words[index][:1] == "-":
        word = words[index]
        index += 1
        value = words[index] if index < len(words) else ""
        if word == "-C":
            folders.append(value)
        elif word == "-c":
            settings.append(value)
        elif word not in GLOBAL_FLAGS and word not in ("--version", "--help", "-v", "-h"):
            unusual = unusual or word.partition("=")[0]
        index += word in VALUES
    subcommand = words[index] if index < len(words) else ""
    return GitCall(subcommand, index + 1, tuple(folders), tuple(settings), unusual)


def check_git(words: Sequence[str], globs: Sequence[int]) -> tuple[str, ...] | None:
    """The files that a git command reads, or None if it may do more than read."""
    begin = 1
    while begin < len(words) and words[begin] in GLOBAL_FLAGS:
        begin += 1
    rest = tuple(words[begin:])
    if rest in ALONE:
        return ()
    nested = NESTED.get(" ".join(rest[:2]))
    program = nested or READERS.get(rest[0]) if rest else None
    if program is None:
        return None
    found = parse_arguments(program, words, begin + (2 if nested else 1))
    if found is None or not accepts_globs(program, words, globs, found):
        return None
    if not _has_safe_formats(rest[0], found):
        return None
    if found.operands and rest[0] in LISTS and not found.has_flag(*LISTS[rest[0]]):
        return None
    if rest[0] == "config" and not _is_safe_config_read(words, found):
        return None
    return read_operands(program, words, found) + _named_paths(words, found)


def _has_safe_formats(subcommand: str, found: ParsedArguments) -> bool:
    known = REF_FORMAT if subcommand in REF_FORMATS else COMMIT_FORMAT
    formats, sorts = found.values("format", "pretty"), found.values("sort")
    return all(map(known.fullmatch, formats)) and all(map(SORT.fullmatch, sorts))


def _is_safe_config_read(words: Sequence[str], found: ParsedArguments) -> bool:
    """Whether the command prints a single value that is not a secret. A second operand would be set."""
    reads = found.has_flag(*CONFIG_READS) or (len(found.operands) == 1 and not found.has_flag(*CONFIG_LISTS))
    return reads and bool(found.operands) and config.is_safe_to_print(words[found.operands[0]])


def shows_urls(words: Sequence[str]) -> bool:
    """Whether the command prints the URLs of remotes, which may contain passwords."""
    call = parse_git_call(words)
    rest = words[call.begin :]
    return call.subcommand == "remote" or (call.subcommand == "config" and any(map(config.is_url, rest)))


# Files and contents.


def find_named_paths(words: Sequence[str]) -> tuple[str, ...]:
    """The files in `HEAD:.env`, `:(top).env` and `-L 1,5:.env`, for any subcommand and any flags."""
    return tuple(path for word in words[1:] if (path := _path_in_word(word)))


def _named_paths(words: Sequence[str], found: ParsedArguments) -> tuple[str, ...]:
    texts = found.list_operands(words) + found.values("L")
    return tuple(path for text in texts if (path := _path_in_word(text)))


def _path_in_word(text: str) -> str | None:
    """The file in a revision or pathspec; an excluding pathspec names none."""
    magic = MAGIC.match(text)
    if magic is None:
        return path_in_revision(text)
    kinds = (magic[1] or "") + (magic[2] or "")
    excludes = "!" in kinds or "^" in kinds or "exclude" in kinds
    return None if excludes else text[magic.end() :].lstrip("/") or None


def path_in_revision(text: str) -> str | None:
    """The path in `HEAD:path` and `:0:path`; None if there is none. `HEAD@{10:00}` is a commit."""
    plain = REVISION.sub(lambda found: "_" * len(found[0]), text)
    if ":" not in plain:
        return None
    return text[plain.rindex(":") + 1 :].lstrip("/") or None


class PrintedPaths(Struct, frozen=True):
    """The files whose lines a command prints."""

    paths: tuple[str, ...] | None
    """Only these pathspecs and revisions; None for any file."""
    explicit: bool = False
    """All of them are pathspecs, because they follow `--`."""


def find_printed_paths(words: Sequence[str]) -> PrintedPaths | None:
    """The files whose lines a git command prints; None if it prints no file that it does not name."""
    call = parse_git_call(words)
    name, begin = call.subcommand, call.begin
    following = words[begin] if begin < len(words) else ""
    if f"{name} {following}" in NESTED:
        name, begin = (name if name == "reflog" else f"{name}-{following}"), begin + 1
    if name in PRINTS_NOTHING or name in ("", "worktree-list", "remote-get-url"):
        return PrintedPaths(None) if _shows_hunks(name, words[begin:]) else None
    program = LOG if name == "reflog" else NESTED.get(name.replace("-", " ", 1)) or READERS.get(name)
    found = parse_arguments(program, words, begin) if program else None
    if found is None:
        return PrintedPaths(None)
    if name == "cat-file":
        return None if not found.has_flag("p") and _prints_type(words, found) else _printed_objects(words, found)
    shows_patch = found.has_flag(*PATCH_FLAGS)
    operands = found.list_operands(words)
    if name == "show" and operands and not shows_patch and all(map(path_in_revision, operands)):
        return PrintedPaths(None) if any(word.startswith(":/") for word in operands) else None
    if name in PRINTS_IF_ASKED and not shows_patch:
        return None
    if name in PRINTS_BY_ITSELF and not shows_patch and found.has_flag(*NAME_FLAGS):
        # A blob is printed whatever the flags are.
        return PrintedPaths(None) if name == "show" and any(map(HASH.fullmatch, operands)) else None
    return _printed_paths(name, words, found)


def _shows_hunks(name: str, rest: Sequence[str]) -> bool:
    if name in ("status", "commit") and any(map(VERBOSE.fullmatch, rest)):
        return True
    if name == "worktree":
        return "add" in rest[:1]  # a second checkout has every file under another path
    if name == "clone":
        return not any(map(config.REMOTE_URL.match, rest))  # so has a clone of a repository on this machine
    if name != "branch" and any(map(CURRENT_PATCH.fullmatch, rest)):
        return True
    return name in CHOOSES_HUNKS and any(map(HUNKS.fullmatch, rest))


HASH = re.compile(r"[0-9a-fA-F]{4,64}")
SIZES = ("t", "s", "e")


def _prints_type(words: Sequence[str], found: ParsedArguments) -> bool:
    return found.has_flag(*SIZES) or any(words[index] in ("commit", "tree", "tag") for index in found.operands[:1])


def _printed_objects(words: Sequence[str], found: ParsedArguments) -> PrintedPaths | None:
    """`cat-file`: an object that is named by its path is checked by that path."""
    objects = [words[index] for index in found.operands if words[index] != "blob"]
    return None if objects and all(path_in_revision(each) for each in objects) else PrintedPaths(None)


def _printed_paths(name: str, words: Sequence[str], found: ParsedArguments) -> PrintedPaths:
    operands = found.operands
    if name == "grep" and not found.has_flag("e", "f"):
        operands = operands[1:]
    if found.has_flag("L", "full-diff") or name.startswith("stash"):
        return PrintedPaths(None)
    if name == "diff" and any(HASH.fullmatch(words[index]) for index in operands):
        return PrintedPaths(None)  # it may be a blob, compared with a file
    dashes = next((index for index in range(2, len(words)) if words[index] == "--"), None)
    if dashes is not None:
        paths = tuple(words[index] for index in operands if index > dashes)
        return PrintedPaths(paths or None, explicit=True)
    return PrintedPaths(tuple(words[index] for index in operands) or None)
