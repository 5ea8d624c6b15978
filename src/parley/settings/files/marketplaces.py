"""The marketplaces that the user added: catalogs of plugins, each copied to the config directory and pinned.

    plugins/known_marketplaces.json        {"tools": {"source": {"source": "github", "repo": "acme/tools"}, ...}}
    plugins/marketplaces/NAME/             the copy
    .claude-plugin/marketplace.json        in it: {"name": "tools", "plugins": [{"name": "kit", "source": "./kit"}]}

The layout is Claude Code's, with `contentHash` in addition. A session reads no marketplace and downloads nothing.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec

from parley.protocol.base import Json, Struct
from parley.settings import safe_read
from parley.settings.files.installed_plugins import FOLDER, MARKETPLACE
from parley.settings.files.plugin_source import (
    ARCHIVE,
    CATALOG,
    CATALOG_URL,
    GIT_URL,
    PACKAGE,
    InvalidSource,
    PluginSource,
    is_bare_repository,
)
from parley.settings.mcp_files import RawObject, edit_file
from parley.settings.writer import encode

REGISTRY = "known_marketplaces.json"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
NPM_REGISTRY = "https://registry.npmjs.org"
NPM_NAME = re.compile(r"(@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~-][a-z0-9._~-]*")
NPM_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")
REPOSITORY = re.compile(r"\w[\w.-]*/\w[\w.-]*")
RESERVED = frozenset({MARKETPLACE, "inline", "builtin", "skills-dir", "synced"})
OFFICIAL = re.compile(r"anthropic.*|claude-(code|plugins?|community|for|tag)(-.*)?|.*official-claude.*|agent-skills")
"""Names that only repositories of github.com/anthropics may have, so that no other can pose as the vendor."""


class KnownMarketplace(Struct, frozen=True, kw_only=True):
    source: Json
    installLocation: str = ""
    lastUpdated: str = ""
    contentHash: str = ""


class CatalogEntry(Struct, frozen=True, kw_only=True):
    name: str
    source: str | Json
    description: str = ""
    version: str = ""


class Catalog(Struct, frozen=True, kw_only=True):
    name: str
    plugins: list[CatalogEntry] = []
    metadata: Json = {}


def parse_source(text: str, cwd: str) -> Json:
    """The object that describes where a marketplace is, in the words of Claude Code. Raises InvalidSource."""
    place, hash, ref = text.partition("#")
    path = Path(cwd, os.path.expanduser(text))
    found: Json
    if path.exists():
        real = os.path.realpath(path)
        if path.is_dir() and is_bare_repository(path):
            return {"source": "git", "url": f"file://{real}"}
        return {"source": "directory" if path.is_dir() else "archive", "path": real}
    if ARCHIVE.fullmatch(text):
        return {"source": "archive", "url": text}
    if CATALOG_URL.fullmatch(text):
        return {"source": "url", "url": text}
    if GIT_URL.fullmatch(place):
        found = {"source": "git", "url": place}
    elif REPOSITORY.fullmatch(place):
        found = {"source": "github", "repo": place}
    else:
        raise InvalidSource(
            f"{text} is not a folder, an archive, OWNER/REPOSITORY or the URL of a git repository or a marketplace.json"
        )
    return {**found, "ref": ref} if hash else found


def to_plugin_source(source: Json, *, may_be_local: bool) -> PluginSource:
    """What to copy, unpack or clone for a source object of a marketplace or a plugin. Raises InvalidSource."""
    if source.get("source") == "npm":
        # The address of a package in its registry.
        package, version = source.get("package"), source.get("version", "latest")
        registry = source.get("registry", NPM_REGISTRY)
        if not isinstance(package, str) or NPM_NAME.fullmatch(package) is None or not isinstance(registry, str):
            raise InvalidSource(f"the source {source!r:.200} is invalid")
        if not registry.startswith("https://") and not may_be_local:
            raise InvalidSource(f"the registry {registry:.200} is not an https address")
        if not isinstance(version, str) or NPM_VERSION.fullmatch(version) is None:
            raise InvalidSource(
                f"the version {version!r:.100} of {package} is not an exact version or a tag, as 1.2.0 or latest"
            )
        return PluginSource(place=f"{PACKAGE}{registry.rstrip('/')}/{quote(package, safe='@')}/{version}")
    kind, place = source.get("source"), source.get("url") or source.get("path") or source.get("repo")
    if kind not in ("github", "git", "url", "git-subdir", "archive", "directory"):
        raise InvalidSource(
            f"sources of the kind {kind!r:.100} are not supported (choose from archive, directory, git, git-subdir, "
            "github, npm, url)"
        )
    texts = [source.get(key, "") for key in ("ref", "sha", "path")]
    if not isinstance(place, str) or not all(isinstance(text, str) for text in texts):
        raise InvalidSource(f"the source {source!r:.200} is invalid")
    ref, sha, path = texts
    if kind == "github":
        if REPOSITORY.fullmatch(place) is None:
            raise InvalidSource(f"the repository {place!r:.200} is not OWNER/REPOSITORY")
        return PluginSource(place=f"https://github.com/{place}.git", ref=sha or ref)
    is_remote = ARCHIVE.fullmatch(place) if kind == "archive" else GIT_URL.fullmatch(place)
    if not may_be_local and (not is_remote or place.startswith("file:")):
        raise InvalidSource(f"{place:.200} is on this machine, and the marketplace is not")
    return PluginSource(place=place, ref=sha or ref, path=path if kind == "git-subdir" else "")


def is_local(source: Json) -> bool:
    """Whether a place is on this machine. Beside a URL or a repository, `path` is a path in it."""
    place = str(source.get("repo") or source.get("url") or "file:")
    return place.startswith("file:")


def read_catalog(folder: Path) -> Catalog:
    """Raises InvalidSource."""
    try:
        values = safe_read.parse_json_object(safe_read.read_file(folder / CATALOG, (str(folder),)).data)
        found = msgspec.convert(values, Catalog)
    except (safe_read.UnreadableFile, msgspec.ValidationError) as exc:
        raise InvalidSource(f"not a marketplace: {CATALOG} {exc}") from None
    for name in (found.name, *(entry.name for entry in found.plugins)):
        if NAME.fullmatch(name) is None:
            raise InvalidSource(f"not a marketplace: {CATALOG} has the invalid name {name!a:.100}")
    return found


def check_name(name: str, source: Json) -> None:
    """Raises InvalidSource for a name that is not for everybody."""
    is_vendor = canonical(source).startswith("github.com/anthropics/")
    if name in RESERVED or (OFFICIAL.fullmatch(name.lower()) and not is_vendor):
        raise InvalidSource(f"the name {name!r} is reserved; a marketplace from this source cannot have it")


def find_entry(entry: CatalogEntry, catalog: Catalog, root: Path, *, may_be_local: bool) -> PluginSource:
    """Where a plugin of a marketplace is. Raises InvalidSource."""
    if isinstance(entry.source, dict):
        return to_plugin_source(entry.source, may_be_local=may_be_local)
    base = catalog.metadata.get("pluginRoot", "") if not entry.source.startswith("./") else ""
    if "\0" in f"{base}{entry.source}":
        raise InvalidSource(f"the source of {entry.name} contains a NUL character")
    place, top = os.path.realpath(os.path.join(root, str(base), entry.source)), os.path.realpath(root)
    if ".." in Path(entry.source).parts or (place != top and not safe_read.is_beneath(place, top)):
        raise InvalidSource(f"the source of {entry.name} leads out of its marketplace: {entry.source!r:.200}")
    if not os.path.exists(place):
        raise InvalidSource(
            f"the marketplace has no folder {entry.source!r:.200} for {entry.name}; behind a URL of a JSON file there "
            "are no folders: there, a source is a repository, an archive or an npm package"
        )
    return PluginSource(place=place)


def read_known(config: Path) -> dict[str, KnownMarketplace]:
    """Raises UnreadableFile. Without a registry, no marketplace is known."""
    path = config / FOLDER / REGISTRY
    try:
        values = safe_read.parse_json_object(safe_read.read_file(path).data)
        return msgspec.convert(values, dict[str, KnownMarketplace])
    except safe_read.MissingFile:
        return {}
    except (safe_read.UnreadableFile, msgspec.ValidationError) as exc:
        raise safe_read.UnreadableFile(f"{path} is invalid: {exc}") from None


def edit_known(config: Path, name: str, known: KnownMarketplace | None) -> None:
    """Write the entry of a marketplace; None removes it. Raises SettingsWriteError."""

    def change(values: RawObject) -> RawObject:
        others = {key: value for key, value in values.items() if key != name}
        return others if known is None else {**others, name: encode(msgspec.to_builtins(known))}

    edit_file(config / FOLDER / REGISTRY, change)


def canonical(source: Json) -> str:
    """One text for all ways to name the same place, to compare sources with those of a policy."""
    place = str(source.get("repo") or source.get("url") or source.get("path") or "")
    if source.get("source") == "github":
        place = f"https://github.com/{place}"
    if place.startswith(("/", "file:", "~")):
        return os.path.realpath(os.path.expanduser(place.removeprefix("file://")))
    found = re.fullmatch(r"(?:[\w+]+://)?(?:[^/@]*@)?([^/:]+)(?::\d+)?[/:]*(.*)", place)
    host = found[1].lower().rstrip(".").removeprefix("www.") if found else ""
    path = posixpath.normpath(unquote(found[2] if found else place).strip("/")).removesuffix(".git")
    return f"{host}/{path.lower() if host == 'github.com' else path}"


def host_of(source: Json) -> str:
    return "" if is_local(source) else canonical(source).partition("/")[0]
