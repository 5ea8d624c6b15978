"""What a repository's own configuration may say without naming a program, another repository or a server to ask.

    for entry in parse(data):            # raises Unreadable
        concern(entry)                   # "" for what is harmless

Git runs what some keys say: `core.fsmonitor`, `diff.external`, `filter.x.clean`, `alias.x`, ... The list of such keys
grows with every release, so the list here is of keys that are known to be harmless; any other key is a concern.

See also: where the files are, and what follows from a concern (repository.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

from parley.protocol.base import Struct

Concern = Literal["", "program", "network", "alias"]
"""`network`: git may fetch by itself. `alias`: only a subcommand that git does not have itself is one."""

# Git's own classes of characters: neither `\s` nor `splitlines` mean the same.
HEADER = re.compile(rb'[ \t]*\[([A-Za-z0-9.-]+)(?:[ \t]+"((?:[^"\\\n]|\\[^\n])*)")?\][ \t\r]*(?:[#;].*)?', re.DOTALL)
VARIABLE = re.compile(rb"[ \t]*([A-Za-z][A-Za-z0-9-]*)[ \t]*(?:=(.*))?", re.DOTALL)
EMPTY = re.compile(rb"[ \t\r]*(?:[#;].*)?", re.DOTALL)
BARE = re.compile(rb"[ \t]*([A-Za-z][A-Za-z0-9-]*)[ \t\r]*(?:[#;].*)?", re.DOTALL)


MOST_BYTES = 1 << 18


class Unreadable(Exception):
    """The file is not as git itself writes it."""


class Entry(Struct, frozen=True):
    section: str
    subsection: str | None
    name: str
    value: str | None
    """None if the key stands alone, which means true."""

    @property
    def key(self) -> str:
        return ".".join(part for part in (self.section, self.subsection, self.name) if part is not None)


def entry_of(key: str, value: str | None) -> Entry:
    """An entry as the command line spells it."""
    section, _, rest = key.partition(".")
    subsection, dot, name = rest.rpartition(".")
    return Entry(section.lower(), subsection if dot else None, name.lower(), value)


@lru_cache(maxsize=256)
def parse(data: bytes) -> tuple[Entry, ...]:
    """The entries of a configuration file. A line that takes more than one look raises Unreadable."""
    if b"\0" in data:
        raise Unreadable("there is a NUL in it")  # git ends a key there, and it becomes another
    found: list[Entry] = []
    section: tuple[str, str | None] | None = None
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if EMPTY.fullmatch(line):
            continue
        if header := HEADER.fullmatch(line):
            section = _section(header)
            continue
        variable = BARE.fullmatch(line) or VARIABLE.fullmatch(line)
        if variable is None or section is None:
            raise Unreadable(f"line {number} cannot be read")
        raw = variable[2] if variable.re is VARIABLE else None
        value = None if raw is None else _value(raw, number)
        found.append(Entry(*section, variable[1].decode().lower(), value))
    return tuple(found)


def _section(header: re.Match[bytes]) -> tuple[str, str | None]:
    name, dot, rest = header[1].decode().lower().partition(".")
    if header[2] is None:
        return name, rest if dot else None
    quoted = re.sub(r"\\(.)", r"\1", header[2].decode("utf-8", "surrogateescape"))
    return name, f"{rest}.{quoted}" if dot else quoted


def _value(raw: bytes, number: int) -> str:
    """Without quotes and comment. Escapes other than a quote and a backslash, and further lines, are refused."""
    text, quoted, place = "", False, 0
    source = raw.decode("utf-8", "surrogateescape").strip(" \t\r")
    kept = 0
    while place < len(source):
        char = source[place]
        place += 1
        if char == "\\":
            if place == len(source) or source[place] not in '"\\tn':
                raise Unreadable(f"line {number} cannot be read")
            text += {"t": "\t", "n": "\n"}.get(source[place], source[place])
            place += 1
            kept = len(text)
        elif char == '"':
            quoted = not quoted
            kept = len(text)
        elif char in "#;" and not quoted:
            break
        else:
            text += char
            kept = len(text) if quoted or char not in " \t\r" else kept
    if quoted:
        raise Unreadable(f"line {number} cannot be read")
    return text[:kept]


# What is harmless.


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SECTIONS = {
    "core": names(
        "repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode symlinks autocrlf eol "
        "safecrlf quotepath abbrev bigfilethreshold compression loosecompression deltabasecachelimit packedgitlimit "
        "packedgitwindowsize preloadindex untrackedcache commitgraph multipackindex sparsecheckout sparsecheckoutcone "
        "sharedrepository longpaths protecthfs protectntfs trustctime checkstat whitespace fscache fsync fsyncmethod "
        "fsyncobjectfiles hidedotfiles notesref warnambiguousrefs commentchar commentstring createobject splitindex "
        "prefersymlinkrefs usereplacerefs disambiguate filesreflocktimeout packedrefstimeout maxtreedepth "
        "checkroundtripencoding unsetenvvars worktree hookspath"
    ),
    "extensions": names(
        "worktreeconfig objectformat compatobjectformat preciousobjects refstorage relativeworktrees noop noop-v1"
    ),
    "user": names("name email signingkey useconfigonly"),
    "author": names("name email"),
    "committer": names("name email"),
    "init": names("defaultbranch"),
    "pull": names("rebase ff"),
    "push": names("default autosetupremote followtags gpgsign recursesubmodules useforceifincludes"),
    "fetch": names("prune prunetags all parallel writecommitgraph recursesubmodules output showforcedupdates"),
    "merge": names("ff conflictstyle renames renamelimit stat log autostash branchdesc directoryrenames"),
    "rebase": names("autostash autosquash updaterefs stat missingcommitscheck abbreviatecommands rebasemerges"),
    "rerere": names("enabled autoupdate"),
    "commit": names("gpgsign verbose status cleanup"),
    "tag": names("sort gpgsign forcesignannotated"),
    "branch": names("autosetupmerge autosetuprebase sort"),
    "checkout": names("defaultremote guess workers"),
    "worktree": names("guessremote userelativepaths"),
    "stash": names("showpatch showstat showincludeuntracked"),
    "status": names(
        "showuntrackedfiles short branch relativepaths showstash aheadbehind renames renamelimit displaycommentprefix"
    ),
    "log": names("date decorate abbrevcommit follow mailmap showroot graphcolors excludedecoration"),
    "diff": names(
        "algorithm colormoved colormovedws renames renamelimit context interhunkcontext mnemonicprefix noprefix "
        "srcprefix dstprefix relative wserrorhighlight statgraphwidth statnamewidth wordregex indentheuristic "
        "suppressblankempty autorefreshindex dirstat ignoresubmodules"
    ),
    "grep": names("linenumber column patterntype extendedregexp threads fullname fallbacktonoindex"),
    "blame": names("coloring date showemail showroot blankboundary markunblamablelines markignoredlines"),
    "apply": names("whitespace ignorewhitespace"),
    "am": names("keepcr threeway"),
    "gc": names(
        "auto autodetach autopacklimit aggressivedepth aggressivewindow bigpackthreshold cruftpacks packrefs "
        "pruneexpire worktreepruneexpire reflogexpire reflogexpireunreachable rerereresolved rerereunresolved "
        "writecommitgraph maxcruftsize logexpiry"
    ),
    "pack": names(
        "threads window depth windowmemory deltacachesize deltacachelimit compression usebitmaps usebitmapindex "
        "writebitmaphashcache writebitmaplookuptable usesparse island preferbitmaptips indexversion packsizelimit "
        "allowpackreuse writereverseindex readreverseindex"
    ),
    "repack": names("usedeltabaseoffset packkeptobjects usedeltaislands writebitmaps updateserverinfo"),
    "index": names("version threads sparse skiphash recordendofindexentries recordoffsettable"),
    "feature": names("manyfiles experimental"),
    "maintenance": names("auto strategy autodetach"),
    "transfer": names("fsckobjects hiderefs unpacklimit advertisesid"),
    "receive": names("denycurrentbranch denynonfastforwards denydeletes denydeletecurrent fsckobjects autogc"),
    "http": names("postbuffer version lowspeedlimit lowspeedtime extraheader maxrequests"),
    "gpg": names("format"),
    "interactive": names("singlekey"),
    "submodule": names("recurse active fetchjobs propagatebranches alternatelocation alternateerrorstrategy"),
    "lfs": names(
        "repositoryformatversion url concurrenttransfers fetchinclude fetchexclude fetchrecentrefsdays "
        "fetchrecentcommitsdays fetchrecentalways pruneoffsetdays allowincompletepush locksverify skipdownloaderrors "
        "activitytimeout dialtimeout tlstimeout keepalive batch basictransfersonly"
    ),
    "versionsort": names("suffix"),
    "help": names("autocorrect"),
}  # fmt: skip
"""Keys without a subsection."""

SUBSECTIONS = {
    "remote": names(
        "fetch push mirror prune prunetags tagopt skipdefaultupdate skipfetchall followremotehead gh-resolved "
        "glab-resolved"
    ),
    "branch": names(
        "remote merge rebase pushremote description vscode-merge-base gh-merge-base github-pr-owner-number "
        "github-pr-base-branch gk-merge-base gk-merge-target gk-last-accessed gk-last-modified"
    ),
    "submodule": names("active branch path fetchrecursesubmodules ignore shallow"),
    "diff": names("xfuncname funcname binary wordregex algorithm"),
    "http": names("extraheader postbuffer version"),
    "credential": names("username usehttppath"),
    "lfs": names("access locksverify contenttype"),
    "maintenance": names("enabled schedule"),
    "gitflow": names("master develop feature bugfix release hotfix support versiontag"),
}
"""Keys with one, whatever it is."""
ANY_KEY = names("color column advice gui git-town gitlens vscode")
"""Sections that hold colours, hints, windows, and notes of other tools."""
NETWORK = names("remote.promisor remote.partialclonefilter extensions.partialclone")

SCHEMELESS = re.compile(r"[A-Za-z0-9+.-]+::")
"""Before it stands the name of a program that git runs to reach a remote."""
EDITORS = names("vi vim nvim nano emacs ed micro hx true :")
PAGER = re.compile(r"(?:cat|(?:less|more)(?: -[FRXSKi]+)*|)")
HELPERS = frozenset(["", "store", "cache", "osxkeychain", "manager", "manager-core", "wincred", "libsecret"])
LFS = {"clean": "git-lfs clean -- %f", "smudge": "git-lfs smudge -- %f", "process": "git-lfs filter-process"}
SWITCH = re.compile(r"true|false|yes|no|on|off|0|1|", re.IGNORECASE)


def _is_plain_url(value: str | None) -> bool:
    return value is not None and SCHEMELESS.match(value) is None and not value.startswith("-")


VALUES: dict[tuple[str, bool, str], Callable[[Entry], bool]] = {
    # (section, with a subsection, name): whether the value is harmless.
    ("core", False, "fsmonitor"): lambda entry: SWITCH.fullmatch(entry.value or "") is not None,
    ("core", False, "pager"): lambda entry: PAGER.fullmatch(entry.value or "") is not None,
    ("core", False, "editor"): lambda entry: (entry.value or "") in EDITORS | {"code --wait", "code -w"},
    ("sequence", False, "editor"): lambda entry: (entry.value or "") in EDITORS,
    ("remote", True, "url"): lambda entry: _is_plain_url(entry.value),
    ("remote", True, "pushurl"): lambda entry: _is_plain_url(entry.value),
    ("submodule", True, "url"): lambda entry: _is_plain_url(entry.value),
    ("submodule", True, "update"): lambda entry: entry.value in ("checkout", "rebase", "merge", "none"),
    ("url", True, "insteadof"): lambda entry: _is_plain_url(entry.subsection),
    ("url", True, "pushinsteadof"): lambda entry: _is_plain_url(entry.subsection),
    ("credential", False, "helper"): lambda entry: (entry.value or "") in HELPERS,
    ("credential", True, "helper"): lambda entry: (entry.value or "") in HELPERS,
    ("filter", True, "required"): lambda entry: True,
    **{
        ("filter", True, part): lambda entry: entry.subsection == "lfs" and entry.value == LFS[entry.name]
        for part in LFS
    },
    ("diff", False, "submodule"): lambda entry: entry.value == "short",
    ("log", False, "showsignature"): lambda entry: (entry.value or "true").lower() in ("false", "no", "off", "0"),
}


def concern(entry: Entry) -> Concern:
    """What an entry may bring git to. Paths (`core.worktree`, `core.hooksPath`) are looked at elsewhere."""
    section, has_subsection, name = entry.section, entry.subsection is not None, entry.name
    if section in ANY_KEY:
        return ""
    if section == "alias":
        return "alias"
    if f"{section}.{name}" in NETWORK:
        return "network"
    if check := VALUES.get((section, has_subsection, name)):
        return "" if check(entry) else "program"
    known = (SUBSECTIONS if has_subsection else SECTIONS).get(section, frozenset())
    return "" if name in known else "program"


# What may be shown.

TOKEN = re.compile(r"https?://(?:[^/\s\"@:]*:[^/\s\"@]+|[^/\s\"@:]{20,}|gh[a-z]_[^/\s\"@]+|glpat-[^/\s\"@]+)@")
SHOWN = names(
    "user author committer core branch init pull push color merge diff rebase commit tag fetch status log remote gpg "
    "extensions index feature submodule rerere column advice"
)


def is_shown(key: str) -> bool:
    """Whether the value of a key, spelled as on the command line, is no secret, unless it is a URL with one in it."""
    entry = entry_of(key, "")
    if entry.section not in SHOWN:
        return False
    return is_url(key) or entry.section in ANY_KEY or _is_listed(entry)


def _is_listed(entry: Entry) -> bool:
    known = SECTIONS if entry.subsection is None else SUBSECTIONS
    return entry.name in known.get(entry.section, frozenset()) or (entry.section == "core" and entry.name == "editor")


def is_url(key: str) -> bool:
    section, _, rest = key.lower().partition(".")
    return section in ("remote", "submodule") and rest.rpartition(".")[2] in ("url", "pushurl")


def has_secret(text: str) -> bool:
    """Whether a password or token stands in a URL."""
    return TOKEN.search(text) is not None
