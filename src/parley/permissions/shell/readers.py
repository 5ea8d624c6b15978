"""Which commands only read, and which files they read, proven word by word from the tables.

Assignments before a command are accepted if they only change how it prints. Any other variable could choose the program
that runs (PATH), its code (LD_PRELOAD, NODE_OPTIONS) or its servers (GIT_SSH_COMMAND, HTTP_PROXY).

A reader may open more files than it names. With the flags of FOLLOWING, or when it compares folders, it also opens the
targets of symlinks below its operands. `md5sum -c` opens the files that a list names. A recursive search opens
all files of a folder.

READERS lists programs with their harmless flags. Left out on purpose are flags that write (`sort -o`, `tree -o`,
`file -C`), that run another program (`sort --compress-program`, `rg --pre`, `rg -z`, `diff -l`), and those that open a
socket or resolve a name (`hostname -f`).

See also: git (git_arguments.py), programs whose arguments are more than flags and operands (special_readers.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from parley.permissions.base import word_set
from parley.permissions.shell.arguments import (
    CD_COMMANDS,
    UnwrappedCommand,
    accepts_globs,
    inner_argv,
    parse_arguments,
    program_table,
    read_operands,
    unwrap,
)
from parley.permissions.shell.git_arguments import check_git, find_printed_paths
from parley.permissions.shell.special_readers import CHECKS
from parley.permissions.shell.strict_parser import CommandLine, SimpleCommand

TRUSTED_FOLDERS = ("/bin/", "/usr/bin/")
WORD = re.compile(r"[A-Za-z0-9_.@-]*")
ZONE = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*")
SWITCH = re.compile(r"[01]?|true|false|yes|no")
NUMBER = re.compile(r"\d{0,6}")
PLAIN_PAGER = re.compile(r"cat|")

SAFE_ASSIGNMENTS = {
    "LANG": WORD, "LC_ALL": WORD, "LC_CTYPE": WORD, "LC_COLLATE": WORD, "LC_MESSAGES": WORD, "LC_NUMERIC": WORD,
    "LC_TIME": WORD, "TERM": WORD, "NODE_ENV": WORD, "RAILS_ENV": WORD, "GOOS": WORD, "GOARCH": WORD,
    "TZ": ZONE,
    "CI": SWITCH, "NO_COLOR": SWITCH, "FORCE_COLOR": NUMBER, "CLICOLOR": SWITCH, "CLICOLOR_FORCE": SWITCH,
    "PYTHONUNBUFFERED": SWITCH, "PYTHONDONTWRITEBYTECODE": SWITCH, "PYTHONUTF8": SWITCH, "RUST_BACKTRACE": WORD,
    "COLUMNS": NUMBER, "LINES": NUMBER, "GIT_OPTIONAL_LOCKS": SWITCH, "GIT_TERMINAL_PROMPT": SWITCH,
    "PAGER": PLAIN_PAGER, "GIT_PAGER": PLAIN_PAGER, "MANPAGER": PLAIN_PAGER,
}  # fmt: skip
# The flags with which symlinks are followed, and those with which subfolders are entered too; `*` means always.
FOLLOWING = {
    **dict.fromkeys(("grep", "egrep", "fgrep"), ("R dereference-recursive", "*")),
    "rg": ("L follow", "*"),
    "ls": ("L dereference", "R recursive"),
    "du": ("L dereference", "*"),
    "tree": ("l", "*"),
    "diff": ("*", "r recursive"),
}
CHECKERS = word_set("cksum md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum shasum")
FIND_FLAGS = frozenset({"-L", "-follow"})
SEARCHERS = frozenset({"rg", "ag", "ack", "ugrep", "rgrep"})
RECURSIVE = re.compile(r"-[A-Za-z]*[rRa].*|--(?:dereference-)?rec.*|--dir.*|recurse|--archive")
SEARCHERS_IF_RECURSIVE = frozenset({"grep", "egrep", "fgrep", "zgrep", "diff", "cp"})
GIT_KEEPS_FILES = word_set("add commit push fetch tag branch")
FILE_LISTS = ("--files0-from", "--files-from")
READERS = program_table(
    """
    ls | globs=anywhere: aAbBcCdDfFgGhHiI:klLmnNopqQrRsStT:uUvw:xXZ1 all almost-all author escape block-size=
        ignore-backups color? directory dired classify? file-type format= full-time group-directories-first no-group
        human-readable si dereference-command-line dereference-command-line-symlink-to-dir hide= hyperlink?
        indicator-style= inode ignore= kibibytes dereference numeric-uid-gid literal hide-control-chars
        show-control-chars quote-name quoting-style= reverse recursive size sort= time= time-style= tabsize= width=
        context zero version help
    cat | globs=anywhere: AbeEnstTuv show-all number-nonblank show-ends number squeeze-blank show-tabs show-nonprinting
        version help
    pwd | max_operands=0: LP logical physical
    head | globs=anywhere number_flags: c:n:qvz bytes= lines= quiet silent verbose zero-terminated
    tail | globs=anywhere number_flags: c:fFn:qs:vz bytes= follow? lines= max-unchanged-stats= pid= quiet silent retry
        sleep-interval= verbose zero-terminated
    grep egrep fgrep | operands=pattern globs=anywhere number_flags pattern_flags=e,f,regexp,file
        recursive_flags=r,R,recursive,dereference-recursive file_flags=f,file,exclude-from:
        EFGPivwxyclLoqshHnbZzraRITUe:f:m:A:B:C:d:D: extended-regexp fixed-strings basic-regexp perl-regexp regexp= file=
        ignore-case no-ignore-case word-regexp line-regexp null-data no-messages invert-match max-count= byte-offset
        line-number line-buffered with-filename no-filename label= only-matching quiet silent binary-files= text
        directories= devices= recursive dereference-recursive include= exclude= exclude-from= exclude-dir=
        files-without-match files-with-matches count initial-tab null before-context= after-context= context= color?
        colour? binary version help group-separator= no-group-separator
    rg | operands=pattern pattern_flags=e,f,regexp,file,files,type-list recursive_flags=* file_flags=f,file:
        iSsvwxFcloqnNHIUPLpu.0ae:g:t:T:A:B:C:m:d:M:j:r:E:f: ignore-case smart-case case-sensitive invert-match
        word-regexp line-regexp fixed-strings count count-matches files-with-matches files-without-match files
        only-matching quiet line-number no-line-number with-filename no-filename multiline multiline-dotall pcre2 follow
        pretty unrestricted hidden no-hidden text null regexp= glob= iglob= type= type-not= type-list after-context=
        before-context= context= max-count= max-depth= maxdepth= max-columns= max-columns-preview threads= replace=
        encoding= file= heading no-heading color= colors= column no-column no-ignore no-ignore-vcs no-ignore-parent
        no-messages sort= sortr= stats json trim vimgrep passthru crlf no-config max-filesize= glob-case-insensitive
        one-file-system debug context-separator= field-match-separator= byte-offset path-separator= version help
    wc | globs=anywhere: clmwL bytes chars lines words max-line-length total=
    which | operands=names: as
    type | operands=names: afptP
    diff: qrNabBwiEtTyusdpeC:U:cW:x:I:F:Z brief recursive new-file text ignore-space-change ignore-all-space
        ignore-blank-lines ignore-case ignore-tab-expansion ignore-trailing-space expand-tabs initial-tab side-by-side
        unified? context? report-identical-files minimal show-c-function color? width= exclude= suppress-common-lines
        no-dereference strip-trailing-cr label= normal left-column speed-large-files version help
    cmp: bin:ls print-bytes bytes= verbose quiet silent ignore-initial=
    comm: 123z check-order nocheck-order output-delimiter= total zero-terminated
    stat | globs=anywhere: Lftc: dereference file-system terse format= printf= cached= version
    du | globs=anywhere file_flags=X,exclude-from: abcd:B:DhHklLmPsSt:xX:0 all apparent-size block-size= bytes total
        dereference-args max-depth= human-readable inodes dereference no-dereference separate-dirs si summarize
        threshold= time? time-style= exclude= exclude-from= one-file-system null
    df: ahHiklPTt:x:B: all block-size= human-readable si inodes local portability output? print-type type= exclude-type=
        total
    cd | max_operands=1 globs=nowhere: LPe@
    file | globs=anywhere: bihkLNnr0F: brief mime mime-type mime-encoding keep-going dereference no-dereference no-pad
        raw separator= print0 version help extension
    basename | operands=text globs=anywhere: as:z multiple suffix= zero
    dirname | operands=text globs=anywhere: z zero
    realpath | file_flags=relative-to,relative-base: eEmLPqsz canonicalize canonicalize-existing canonicalize-missing
        logical physical quiet strip no-symlinks zero relative-to= relative-base=
    readlink: fenmqsvz canonicalize canonicalize-existing canonicalize-missing no-newline quiet silent verbose zero
    sort: bdfghiMnRrVcCmsuzk:t:S: ignore-leading-blanks dictionary-order ignore-case general-numeric-sort
        human-numeric-sort ignore-nonprinting month-sort numeric-sort random-sort reverse sort= version-sort check?
        merge stable unique zero-terminated key= field-separator= buffer-size= parallel= batch-size= debug version help
    uniq | max_operands=1 globs=nowhere: cdDiuzf:s:w: count repeated all-repeated? skip-fields= group? ignore-case
        skip-chars= unique zero-terminated check-chars=
    cut | globs=anywhere: b:c:d:f:nsz bytes= characters= delimiter= fields= only-delimited output-delimiter= complement
        zero-terminated
    tr | operands=text globs=nowhere: cCdst complement delete squeeze-repeats truncate-set1
    paste: d:sz delimiters= serial zero-terminated
    fold: bsw: bytes spaces width=
    column: ts:o:c:xN:R:JnH: table separator= output-separator= table-columns= fillrows json
    nl: b:d:f:h:i:l:n:ps:v:w: body-numbering= number-format= number-width= starting-line=
    tac | globs=anywhere: brs: before regex separator=
    rev:
    seq | operands=text number_flags: f:s:w format= separator= equal-width
    true false | operands=text globs=anywhere:
    id | max_operands=0: agGnruzZ group groups name real user zero context
    whoami groups | max_operands=0:
    hostname | max_operands=0: s short
    uname | max_operands=0: asnrvmpio all kernel-name nodename kernel-release kernel-version machine processor
        hardware-platform operating-system
    arch | max_operands=0:
    tty | max_operands=0: s
    od: A:bcdDeFhHiIj:lLN:oOsS:t:vw::xX address-radix= endian= skip-bytes= read-bytes= strings? format=
        output-duplicates width?
    hexdump: bcCdon:s:vx canonical length= skip= no-squeezing
    strings | number_flags list_prefix=@: afn:t:e:wo all print-file-name bytes= radix= encoding=
    tree: adfilpsughDFQNqnrtcUvCASxJXL:P:I: dirsfirst noreport gitignore prune matchdirs ignore-case du si inodes device
        metafirst filesfirst sort= filelimit= fromfile charset= timefmt=
    free | max_operands=0: bkmghltwvs:c: bytes kilo mega giga human si lohi total wide
    uptime | max_operands=0: psV pretty since version
    nproc | max_operands=0: - all ignore=
    base64: dw:i decode wrap= ignore-garbage
    cksum: a:l:cz algorithm= length= check tag untagged zero base64 raw
    md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum shasum | globs=anywhere: bctwz binary check tag text
        zero ignore-missing quiet status strict warn version help
    """
)
# Complete commands of programs that are otherwise unknown. Not npm, yarn, pnpm, cargo or go: the program that prints
# their version may come from the working tree (CVE-2025-59828).
VERSIONS = frozenset(
    (name, flag)
    for names, flags in (
        ("python python3 python3.11 python3.12 python3.13 pip pip3", "--version -V"),
        ("node nodejs", "--version -v"),
        ("ruby perl php", "--version -v"),
        ("git gcc g++ clang make cmake bash rg jq curl tar docker", "--version"),
        ("java", "-version --version"),
    )
    for name in names.split()
    for flag in flags.split()
)


def is_read_only(line: CommandLine, *, cwd: str = "") -> bool:
    """Whether every command of the line only reads, and none runs git in another folder."""
    return all(reads_only(command) for command in line.commands) and not leaves_folder(line, cwd)


def reads_only(command: SimpleCommand) -> bool:
    if any(redirect.writes for redirect in command.redirects) or not has_safe_assignments(command):
        return False
    return files_read(command) is not None


def has_safe_assignments(command: SimpleCommand) -> bool:
    """Whether every assignment before a command is in the table, with a value that fits."""
    return all(
        name in SAFE_ASSIGNMENTS and SAFE_ASSIGNMENTS[name].fullmatch(value) is not None
        for name, value in command.assignments
    )


@lru_cache(maxsize=128)
def files_read(command: SimpleCommand) -> tuple[str, ...] | None:
    """The files that a command reads; None if it may do more than read."""
    if command.globs and command.argv[0] in ("test", "[") and not is_one_word_each(command):
        return None
    found = _find_read_files(UnwrappedCommand(command.argv, command.words, command.globs))
    if found is None and not command.opaque:
        inner = unwrap(command)
        if inner is None or not inner.wrappers or {"nohup", "xargs"} & set(inner.wrappers):
            return None
        found = _find_read_files(inner)
    return found


def is_one_word_each(command: SimpleCommand) -> bool:
    """Whether every word of a command becomes exactly one argument."""
    return all(index in command.opaque and index not in command.split for index in command.globs)


def _find_read_files(command: UnwrappedCommand) -> tuple[str, ...] | None:
    if not command.argv:
        return None
    name = program_name(command.argv[0])
    if (name, *command.argv[1:]) in VERSIONS:
        return ()
    if name == "git":
        return check_git(command.argv, command.globs)
    if check := CHECKS.get(name):
        return check(command.argv, command.globs)
    program = READERS.get(name)
    if program is None:
        return None
    found = parse_arguments(program, command.argv)
    if found is None or not accepts_globs(program, command.argv, command.globs, found):
        return None
    return read_operands(program, command.argv, found)


def program_name(word: str) -> str:
    """The name of a program, without the folder if that is one of the system's."""
    folder, slash, name = word.rpartition("/")
    return name if slash and f"{folder}/" in TRUSTED_FOLDERS else word


def leaves_folder(line: CommandLine, cwd: str = "", *, inspects_git: bool = False) -> bool:
    """Whether the line changes its folder and then runs git or a program by a relative path.

    If the caller inspects the repositories in all folders of the line, git may run there as long as no command before
    it changes files, which may be those of another repository.
    """
    has_moved = has_changed = False
    stays = (("cd", "."), ("cd", cwd or "."))
    for command in line.commands:
        inner = unwrap(command)
        name = inner.argv[0] if inner else ""
        is_git = name.rpartition("/")[2] == "git"
        if has_moved and (
            not name or ("/" in name and name[0] != "/") or (is_git and (has_changed or not inspects_git))
        ):
            return True
        has_moved = has_moved or (inner is not None and name in CD_COMMANDS and inner.argv not in stays)
        has_changed = has_changed or not (reads_only(command) or (is_git and keeps_files(inner)))
    return False


def keeps_files(command: UnwrappedCommand | None) -> bool:
    """Whether a git command leaves the files of the working tree as they are."""
    return command is not None and len(command.argv) > 1 and command.argv[1] in GIT_KEEPS_FILES


def find_followed_folders(command: SimpleCommand) -> tuple[tuple[str, bool], ...]:
    """The operands below which a reader follows symlinks, and whether at any depth."""
    argv = inner_argv(command)
    name = program_name(argv[0]) if argv else ""
    if name == "find":
        return tuple((start, True) for start in _find_start_folders(argv)) if FIND_FLAGS.intersection(argv) else ()
    if name not in FOLLOWING:
        return ()
    follows, deep = FOLLOWING[name]
    if follows != "*" and not any(flag in word for flag in follows.split() for word in argv):
        return ()
    found = parse_arguments(READERS[name], argv)
    if found is None or found.has_flag("no-dereference") or (follows != "*" and not found.has_flag(*follows.split())):
        return ()
    is_deep = deep == "*" or found.has_flag(*deep.split())
    return tuple((file, is_deep) for file in read_operands(READERS[name], argv, found) or (".",))


def checks_sums(command: SimpleCommand) -> bool:
    """Whether a reader opens the files that a list of checksums names."""
    argv = inner_argv(command)
    name = program_name(argv[0]) if argv else ""
    found = parse_arguments(READERS[name], argv) if name in CHECKERS else None
    return found is not None and found.has_flag("c", "check")


def _find_start_folders(argv: Sequence[str]) -> Sequence[str]:
    """The folders at which `find` may start: every argument that is not a flag."""
    return [word for word in argv[1:] if word[:1] not in ("-", "(", ")", "!", ",")] or ["."]


def reads_whole_folders(words: Sequence[str]) -> bool:
    """Whether a command reads every file in a folder, or the files named in a list."""
    name = words[0].rpartition("/")[2] if words else ""
    if name == "git":
        return find_printed_paths(words) is not None
    if name in SEARCHERS or any(word.startswith(FILE_LISTS) for word in words[1:]):
        return True
    return name in SEARCHERS_IF_RECURSIVE and any(RECURSIVE.fullmatch(word) for word in words[1:])
