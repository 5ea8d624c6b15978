"""The forms of git that only read.

A flag that is not in the row of its subcommand is unknown. So `-c`, `-C`, `--exec-path`, `--output`,
`--ext-diff`, `--textconv`, `-O`, `--upload-pack` and `--show-signature` never pass, nor do their
abbreviations, and a subcommand that talks to a remote has no row. `%G` and `signature` in a format
would start gpg.
"""

from __future__ import annotations

from collections.abc import Sequence

from parley.permissions.shell.programs import Program, Reading, files, globs_fit, reading

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
LOG = Program(short=LOG_SHORT, long=LOG_LONG, numbers=True)
REF_LONG = "contains= no-contains= merged= no-merged= points-at= sort= format= column? no-column color? no-color"

READERS = {
    "status": Program(
        short="sbvzu::",
        long="short branch verbose porcelain? long untracked-files? ignored? column? no-column ahead-behind "
        "no-ahead-behind renames no-renames find-renames? show-stash ignore-submodules?",
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
    "rev-parse": Program(
        short="q",
        long="show-toplevel git-dir absolute-git-dir git-common-dir abbrev-ref? short? verify quiet symbolic "
        "symbolic-full-name is-inside-work-tree is-inside-git-dir is-bare-repository is-shallow-repository "
        "show-prefix show-cdup all branches? tags? remotes? show-superproject-working-tree",
        operands="text",
    ),
    "ls-files": Program(
        short="cdmokstuvzx:",
        long="cached deleted modified others ignored stage unmerged killed exclude= exclude-standard full-name "
        "error-unmatch abbrev? eol directory no-empty-directory deduplicate",
    ),
    "ls-tree": Program(short="drtlz", long="name-only name-status full-name full-tree long abbrev? format="),
    "blame": Program(
        short="wlsetfnbpcL:M::C::",
        long="root show-stats line-porcelain porcelain incremental show-name show-number show-email abbrev? date= "
        "ignore-rev= color-lines",
    ),
    "describe": Program(
        long="all tags long always dirty? broken? abbrev? match= exclude= exact-match first-parent contains "
        "candidates=",
        operands="text",
    ),
    "cat-file": Program(short="tspe", operands="text", most=2),
    "rev-list": Program(short=LOG_SHORT, long=f"{LOG_LONG} objects disk-usage? header timestamp", numbers=True),
    "merge-base": Program(short="a", long="all is-ancestor octopus independent fork-point", operands="text"),
    "name-rev": Program(long="tags refs= exclude= all name-only no-undefined always", operands="text"),
    "for-each-ref": Program(long=f"count= ignore-case {REF_LONG}", operands="text"),
    "show-ref": Program(short="sdq", long="head heads tags dereference hash? verify quiet abbrev?", operands="text"),
    "count-objects": Program(short="vH", long="verbose human-readable", most=0),
    "check-ignore": Program(short="vnqz", long="verbose non-matching quiet no-index"),
    "grep": Program(
        short="iIwvnlLchHqoEFPGWpae:A:B:C:m:f:",
        long="ignore-case word-regexp invert-match line-number files-with-matches name-only files-without-match count "
        "quiet only-matching extended-regexp fixed-strings perl-regexp basic-regexp function-context show-function "
        "text untracked cached no-index break heading color? no-color column max-depth= and or not all-match "
        "after-context= before-context= context= max-count= threads= full-name null recursive no-recursive",
        operands="pattern",
        pattern_flags="e f",
        recursive_flags="*",
        numbers=True,
        file_flags="f",
    ),
    "config": Program(
        short="lz",
        long="get get-all get-regexp list local global system worktree show-origin show-scope name-only null type= "
        "default= bool int path",
        operands="text",
        most=2,
    ),
    "version": Program(long="build-options", most=0),
}

# Subcommands that only read with one of these words behind them.
NESTED = {
    "stash list": LOG,
    "stash show": LOG,
    "reflog show": LOG,
    "worktree list": Program(short="vz", long="porcelain verbose", most=0),
    "remote get-url": Program(long="push all", operands="text", least=1, most=1),
}
# Subcommands that make what their operand names, unless a flag says that it is a pattern.
LISTS = {"branch": ("list",), "tag": ("list", "l")}
CONFIG_READS = ("get", "get-all", "get-regexp", "list", "l")
ALONE = frozenset([("remote",), ("remote", "-v"), ("remote", "--verbose"), ("reflog",)])


def git(words: Sequence[str], globs: Sequence[int]) -> tuple[str, ...] | None:
    """The files that a git command names, or None if it may do more than read."""
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
    found = reading(program, words, begin + (2 if nested else 1))
    if found is None or not globs_fit(program, words, globs, found):
        return None
    if any("%G" in value or "signature" in value for _, value in found.flags):
        return None
    if found.operands and rest[0] in LISTS and not found.has(*LISTS[rest[0]]):
        return None
    if rest[0] == "config" and not found.has(*CONFIG_READS):
        return None
    return files(program, words, found) + _of_revisions(words, found)


def _of_revisions(words: Sequence[str], found: Reading) -> tuple[str, ...]:
    """The files in `HEAD:.env` and `-L 1,5:.env`: what was in them is what is asked for."""
    texts = [words[place] for place in found.operands] + [value for flag, value in found.flags if flag == "L"]
    return tuple(text.rpartition(":")[2] for text in texts if ":" in text and not text.endswith(":"))
