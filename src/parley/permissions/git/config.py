"""Git configuration that is harmless: it names no program, no other repository and no server.

    for entry in parse(data):            # raises UnreadableConfig
        find_concern(entry)                   # "" if the entry is harmless

Git runs the values of some keys: `core.fsmonitor`, `diff.external`, `filter.x.clean`, `alias.x`, ... Every release adds
more, so the tables here list the keys that are known to be harmless. Any other key is a concern.

See also: the files, and what follows from a concern (repository.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

from parley.permissions.base import word_set, word_table
from parley.protocol.base import Struct

Concern = Literal["", "program", "network", "alias"]
"""`network`: git may fetch by itself. `alias`: git runs it only for a subcommand that is not built in."""

# The character classes are git's: `\s` and `splitlines` differ from them.
HEADER = re.compile(rb'[ \t]*\[([A-Za-z0-9.-]+)(?:[ \t]+"((?:[^"\\\n]|\\[^\n])*)")?\][ \t\r]*(?:[#;].*)?', re.DOTALL)
VARIABLE = re.compile(rb"[ \t]*([A-Za-z][A-Za-z0-9-]*)[ \t]*(?:=(.*))?", re.DOTALL)
EMPTY = re.compile(rb"[ \t\r]*(?:[#;].*)?", re.DOTALL)
BARE = re.compile(rb"[ \t]*([A-Za-z][A-Za-z0-9-]*)[ \t\r]*(?:[#;].*)?", re.DOTALL)


MAX_BYTES = 1 << 18


class UnreadableConfig(Exception):
    """The file is not in the form that git writes."""


class ConfigEntry(Struct, frozen=True):
    section: str
    subsection: str | None
    name: str
    value: str | None
    """None if the key has no value, which means true."""

    @property
    def key(self) -> str:
        return ".".join(part for part in (self.section, self.subsection, self.name) if part is not None)


def make_entry(key: str, value: str | None) -> ConfigEntry:
    """An entry as in `git -c key=value`."""
    section, _, rest = key.partition(".")
    subsection, dot, name = rest.rpartition(".")
    return ConfigEntry(section.lower(), subsection if dot else None, name.lower(), value)


@lru_cache(maxsize=256)
def parse(data: bytes) -> tuple[ConfigEntry, ...]:
    """The entries of a configuration file. Raises UnreadableConfig for unusual syntax."""
    if b"\0" in data:
        raise UnreadableConfig("it contains a NUL byte")  # git would end a key there
    found: list[ConfigEntry] = []
    section: tuple[str, str | None] | None = None
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if EMPTY.fullmatch(line):
            continue
        if header := HEADER.fullmatch(line):
            section = _parse_section(header)
            continue
        variable = BARE.fullmatch(line) or VARIABLE.fullmatch(line)
        if variable is None or section is None:
            raise UnreadableConfig(f"line {number} cannot be read")
        raw = variable[2] if variable.re is VARIABLE else None
        value = None if raw is None else _parse_value(raw, number)
        found.append(ConfigEntry(*section, variable[1].decode().lower(), value))
    return tuple(found)


def _parse_section(header: re.Match[bytes]) -> tuple[str, str | None]:
    name, dot, rest = header[1].decode().lower().partition(".")
    if header[2] is None:
        return name, rest if dot else None
    quoted = re.sub(r"\\(.)", r"\1", header[2].decode("utf-8", "surrogateescape"))
    return name, f"{rest}.{quoted}" if dot else quoted


def _parse_value(raw: bytes, number: int) -> str:
    """The value without quotes and comments. Continuation lines and unusual escapes are refused."""
    text, quoted, index = "", False, 0
    source = raw.decode("utf-8", "surrogateescape").strip(" \t\r")
    length = 0
    while index < len(source):
        char = source[index]
        index += 1
        if char == "\\":
            if index == len(source) or source[index] not in '"\\tn':
                raise UnreadableConfig(f"line {number} cannot be read")
            text += {"t": "\t", "n": "\n"}.get(source[index], source[index])
            index += 1
            length = len(text)
        elif char == '"':
            quoted = not quoted
            length = len(text)
        elif char in "#;" and not quoted:
            break
        else:
            text += char
            length = len(text) if quoted or char not in " \t\r" else length
    if quoted:
        raise UnreadableConfig(f"line {number} cannot be read")
    return text[:length]


# Harmless keys.


SECTIONS = word_table(
    """
    core: repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode symlinks autocrlf eol
        safecrlf quotepath abbrev bigfilethreshold compression loosecompression deltabasecachelimit packedgitlimit
        packedgitwindowsize preloadindex untrackedcache commitgraph multipackindex sparsecheckout sparsecheckoutcone
        sharedrepository longpaths protecthfs protectntfs trustctime checkstat whitespace fscache fsync fsyncmethod
        fsyncobjectfiles hidedotfiles notesref warnambiguousrefs commentchar commentstring createobject splitindex
        prefersymlinkrefs usereplacerefs disambiguate filesreflocktimeout packedrefstimeout maxtreedepth
        checkroundtripencoding unsetenvvars worktree hookspath
    extensions: worktreeconfig objectformat compatobjectformat preciousobjects refstorage relativeworktrees noop noop-v1
    user: name email signingkey useconfigonly
    author: name email
    committer: name email
    init: defaultbranch
    pull: rebase ff
    push: default autosetupremote followtags gpgsign recursesubmodules useforceifincludes
    fetch: prune prunetags all parallel writecommitgraph recursesubmodules output showforcedupdates
    merge: ff conflictstyle renames renamelimit stat log autostash branchdesc directoryrenames
    rebase: autostash autosquash updaterefs stat missingcommitscheck abbreviatecommands rebasemerges
    rerere: enabled autoupdate
    commit: gpgsign verbose status cleanup
    tag: sort gpgsign forcesignannotated
    branch: autosetupmerge autosetuprebase sort
    checkout: defaultremote guess workers
    worktree: guessremote userelativepaths
    stash: showpatch showstat showincludeuntracked
    status: showuntrackedfiles short branch relativepaths showstash aheadbehind renames renamelimit displaycommentprefix
    log: date decorate abbrevcommit follow mailmap showroot graphcolors excludedecoration
    diff: algorithm colormoved colormovedws renames renamelimit context interhunkcontext mnemonicprefix noprefix
        srcprefix dstprefix relative wserrorhighlight statgraphwidth statnamewidth wordregex indentheuristic
        suppressblankempty autorefreshindex dirstat ignoresubmodules
    grep: linenumber column patterntype extendedregexp threads fullname fallbacktonoindex
    blame: coloring date showemail showroot blankboundary markunblamablelines markignoredlines
    apply: whitespace ignorewhitespace
    am: keepcr threeway
    gc: auto autodetach autopacklimit aggressivedepth aggressivewindow bigpackthreshold cruftpacks packrefs pruneexpire
        worktreepruneexpire reflogexpire reflogexpireunreachable rerereresolved rerereunresolved writecommitgraph
        maxcruftsize logexpiry
    pack: threads window depth windowmemory deltacachesize deltacachelimit compression usebitmaps usebitmapindex
        writebitmaphashcache writebitmaplookuptable usesparse island preferbitmaptips indexversion packsizelimit
        allowpackreuse writereverseindex readreverseindex
    repack: usedeltabaseoffset packkeptobjects usedeltaislands writebitmaps updateserverinfo
    index: version threads sparse skiphash recordendofindexentries recordoffsettable
    feature: manyfiles experimental
    maintenance: auto strategy autodetach
    transfer: fsckobjects hiderefs unpacklimit advertisesid
    receive: denycurrentbranch denynonfastforwards denydeletes denydeletecurrent fsckobjects autogc
    http: postbuffer version lowspeedlimit lowspeedtime extraheader maxrequests
    gpg: format
    interactive: singlekey
    submodule: recurse active fetchjobs propagatebranches alternatelocation alternateerrorstrategy
    lfs: repositoryformatversion url concurrenttransfers fetchinclude fetchexclude fetchrecentrefsdays
        fetchrecentcommitsdays fetchrecentalways pruneoffsetdays allowincompletepush locksverify skipdownloaderrors
        activitytimeout dialtimeout tlstimeout keepalive batch basictransfersonly
    versionsort: suffix
    help: autocorrect
    """
)
"""Keys without a subsection."""

SUBSECTIONS = word_table(
    """
    remote: fetch push mirror prune prunetags tagopt skipdefaultupdate skipfetchall followremotehead gh-resolved
        glab-resolved
    branch: remote merge rebase pushremote description vscode-merge-base gh-merge-base github-pr-owner-number
        github-pr-base-branch gk-merge-base gk-merge-target gk-last-accessed gk-last-modified
    submodule: active branch path fetchrecursesubmodules ignore shallow
    diff: xfuncname funcname binary wordregex algorithm
    http: extraheader postbuffer version
    credential: username usehttppath
    lfs: access locksverify contenttype
    maintenance: enabled schedule
    gitflow: master develop feature bugfix release hotfix support versiontag
    """
)
"""Keys with any subsection."""
ANY_KEY = word_set("color column advice gui git-town gitlens vscode")
"""Sections with colours, hints, window settings and data of other tools."""
NETWORK = word_set("remote.promisor remote.partialclonefilter extensions.partialclone")

SCHEMELESS = re.compile(r"[A-Za-z0-9+.-]+::")
"""The part before `::` names a program that git runs to access a remote."""
PLAIN_REMOTE = re.compile(r"\w[\w.-]*")
"""A name that is a path only if no remote has it."""
REMOTE_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|[^/]+:")
EDITORS = word_set("vi vim nvim nano emacs ed micro hx true :")
PAGER = re.compile(r"(?:cat|(?:less|more)(?: -[FRXSKi]+)*|)")
HELPERS = frozenset(["", "store", "cache", "osxkeychain", "manager", "manager-core", "wincred", "libsecret"])
LFS = {"clean": "git-lfs clean -- %f", "smudge": "git-lfs smudge -- %f", "process": "git-lfs filter-process"}
SWITCH = re.compile(r"true|false|yes|no|on|off|0|1|", re.IGNORECASE)


def is_local_url(url: str) -> bool:
    """Whether a remote is on this machine: a path, or `file://`. `host:path` is another machine."""
    return url.lower().startswith("file:") or REMOTE_URL.match(url) is None


def is_default_remote(entry: ConfigEntry) -> bool:
    """Whether an entry names the remote of a push without a target. Git also takes a path or a URL there."""
    if entry.subsection is None:
        return (entry.section, entry.name) == ("remote", "pushdefault")
    return entry.section == "branch" and entry.name in ("remote", "pushremote")


def find_local_remote(entry: ConfigEntry) -> str | None:
    """The name of a remote that an entry puts on this machine; empty if it may be any remote, None if it does not."""
    if entry.section == "remote" and entry.name in ("url", "pushurl"):
        return entry.subsection if is_local_url(entry.value or "") else None
    if is_default_remote(entry):
        return None if PLAIN_REMOTE.fullmatch(entry.value or "") or not is_local_url(entry.value or "") else entry.value
    return "" if entry.section == "url" and is_local_url(entry.subsection or "") else None


def _is_plain_url(value: str | None) -> bool:
    return value is not None and SCHEMELESS.match(value) is None and not value.startswith("-")


VALUES: dict[tuple[str, bool, str], Callable[[ConfigEntry], bool]] = {
    # (section, has a subsection, name): whether the value is harmless.
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


def find_concern(entry: ConfigEntry) -> Concern:
    """What an entry may make git do. Paths (`core.worktree`, `core.hooksPath`) are checked in repository.py."""
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


# Secrets.

TOKEN = re.compile(r"https?://(?:[^/\s\"@:]*:[^/\s\"@]+|[^/\s\"@:]{20,}|gh[a-z]_[^/\s\"@]+|glpat-[^/\s\"@]+)@")
PRINTABLE_SECTIONS = word_set(
    "user author committer core branch init pull push color merge diff rebase commit tag fetch status log remote gpg "
    "extensions index feature submodule rerere column advice"
)


def is_safe_to_print(key: str) -> bool:
    """Whether the value of a key is not a secret; a URL may still contain one (`has_secret`)."""
    entry = make_entry(key, "")
    if entry.section not in PRINTABLE_SECTIONS:
        return False
    return is_url(key) or entry.section in ANY_KEY or _is_harmless(entry)


def _is_harmless(entry: ConfigEntry) -> bool:
    known = SECTIONS if entry.subsection is None else SUBSECTIONS
    return entry.name in known.get(entry.section, frozenset()) or (entry.section == "core" and entry.name == "editor")


def is_url(key: str) -> bool:
    section, _, rest = key.lower().partition(".")
    return section in ("remote", "submodule") and rest.rpartition(".")[2] in ("url", "pushurl")


def has_secret(text: str) -> bool:
    """Whether a URL in the text contains a password or token."""
    return TOKEN.search(text) is not None
