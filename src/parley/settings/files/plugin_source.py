"""Bring the files of a plugin or a marketplace here: from a folder, an archive, a git repository or an npm registry.

    with staged(PluginSource(place="kit.zip"), folder) as root: ...     # a new folder, deleted at the end

Nothing is written outside of the new folder, and no link is made: a link to a file of the same source becomes a copy of
it, and a source with any other link, device, or path that leads out is refused. No code of the plugin runs.

See also: `plugins.py` reads a plugin, `installed_plugins.py` keeps the list of installed ones.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import ssl
import stat
import subprocess
import tarfile
import tempfile
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import file_digest
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, cast
from zipfile import BadZipFile, ZipFile, is_zipfile

import msgspec

import parley.workspace.git as git
from parley.errors import ToolError, explain_os_errors
from parley.models.endpoint import is_loopback
from parley.protocol.base import Struct
from parley.settings import safe_read
from parley.settings.files.installed_plugins import SKIPPED
from parley.settings.files.plugins import has_manifest

if TYPE_CHECKING:
    from tarfile import TarFile

MOST_FILES = 10_000
MOST_BYTES = 200_000_000
MOST_JSON_BYTES = 5_000_000
GIT_URL = re.compile(r"(https?|ssh|git|file)://(?![^/\s]*@-)[^-\s][^\s\x00]*|\w[\w.-]*@\w[\w.-]*:[^-:\s][^\s\x00]*")
"""A host, a user or a path that starts with `-` would be an option of ssh."""
ARCHIVE = re.compile(r"https?://[^\s?#]+\.(zip|tar\.gz|tgz)(\?[^\s#]*)?")
CATALOG = ".claude-plugin/marketplace.json"
CATALOG_URL = re.compile(r"https?://[^\s?#]+\.json(\?[^\s#]*)?")
PACKAGE = "npm+"
"""Before the address of a version of a package in an npm registry."""
REF = re.compile(r"\w[\w./-]*")
GIT_SECONDS = 300
DOWNLOAD_SECONDS = 60
PROTOCOLS = "file:git:http:https:ssh"


class InvalidSource(Exception):
    """A plugin cannot be taken from a source. The text says why."""


class PluginSource(Struct, frozen=True, kw_only=True):
    """Where files come from."""

    place: str
    """A folder, an archive, or the URL of an archive, a git repository, a catalog (`.json`) or a package (`npm+`)."""
    ref: str = ""
    """A branch, tag or commit of a git repository."""
    path: str = ""
    """The folder in it, if it has several plugins."""


def parse_place(text: str, path: str) -> PluginSource:
    """What a user names: a folder, an archive, or a URL. The URL of a repository may end in `#REF`."""
    real = os.path.abspath(os.path.expanduser(text))
    if os.path.exists(real) or not GIT_URL.fullmatch(text):
        return PluginSource(place=real if os.path.exists(real) else text, path=path)
    place, _, ref = text.partition("#")
    return PluginSource(place=place, ref=ref, path=path)


@contextmanager
def staged(source: PluginSource, folder: Path) -> Iterator[Path]:
    """Copy, unpack or clone a source into a new folder. Raises InvalidSource."""
    target = make_staging(folder)
    try:
        fetch(source, target / "source")
        yield target / "source"
    finally:
        shutil.rmtree(target, ignore_errors=True)


def make_staging(folder: Path) -> Path:
    """Raises InvalidSource."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=".staging-", dir=folder))
    except OSError as exc:
        raise InvalidSource(f"cannot write to {folder}: {exc.strerror}") from None


def fetch(source: PluginSource, target: Path) -> None:
    """Raises InvalidSource."""
    place, path = source.place, Path(source.place).expanduser()
    if re.match(r"[\w+]+://[^/@]*:[^/@]*@", place):
        raise InvalidSource("the URL contains a password; use a credential helper of git instead")
    if ARCHIVE.fullmatch(place):
        unpack(download(place, target.with_name("download")), target, place)
    elif place.startswith(PACKAGE):
        # Unpack a package of an npm registry, without its dependencies; no script of it runs.
        url = place.removeprefix(PACKAGE)
        about = download(url, target.with_name("package.json"), MOST_JSON_BYTES)
        try:
            files = msgspec.json.decode(about.read_bytes(), type=PackageVersion).dist
        except (msgspec.DecodeError, RecursionError) as exc:
            raise InvalidSource(f"{url} is not a version of an npm package: {exc}") from None
        if url.startswith("https:") and not files.tarball.startswith("https:"):
            raise InvalidSource(f"{files.tarball:.200} is not an https address")
        packed = download(files.tarball, target.with_name("download"))
        with packed.open("rb") as opened:
            digest = f"sha512-{b64encode(file_digest(opened, 'sha512').digest()).decode()}"
        if digest not in files.integrity.split():
            raise InvalidSource(f"{files.tarball} does not have the sha512 digest that the registry states")
        unpack(packed, target, files.tarball)
    elif CATALOG_URL.fullmatch(place):
        (target / CATALOG).parent.mkdir(0o700, parents=True)
        download(place, target / CATALOG, MOST_JSON_BYTES)
    elif GIT_URL.fullmatch(place) or (path.is_dir() and is_bare_repository(path)):
        clone(place if GIT_URL.fullmatch(place) else str(path), source.ref, target)
    elif path.is_dir():
        copy_folder(path, target)
    elif path.is_file():
        unpack(path, target, place)
    else:
        raise InvalidSource(f"{place} is not a folder, an archive (.zip, .tar.gz) or the URL of a git repository")


def download(url: str, target: Path, max_bytes: int = MOST_BYTES) -> Path:
    """Raises InvalidSource. Every address on the way must be https, or on this machine."""

    import httpx2

    def check(request: httpx2.Request) -> None:
        address = str(request.url)
        if not address.startswith("https://") and not (address.startswith("http://") and is_loopback(address)):
            raise InvalidSource(f"{address:.200} is not an https address")

    try:
        with (
            httpx2.Client(
                verify=ssl.create_default_context(),
                timeout=DOWNLOAD_SECONDS,
                follow_redirects=True,
                event_hooks={"request": [check]},  # called for each redirect, too
            ) as client,
            client.stream("GET", url, headers={"accept-encoding": "identity"}) as reply,
            target.open("xb") as new,
        ):
            if reply.is_error:
                raise InvalidSource(f"{url} cannot be downloaded: HTTP status {reply.status_code}")
            copy_exactly(reply.iter_raw(), new, max_bytes, url)
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as exc:
        raise InvalidSource(f"{url} cannot be downloaded: {exc}") from None
    return target


class PackageFiles(Struct, frozen=True):
    tarball: str
    integrity: str


class PackageVersion(Struct, frozen=True):
    """What an npm registry says of one version of a package."""

    dist: PackageFiles


def is_bare_repository(path: Path) -> bool:
    return (path / "HEAD").is_file() and (path / "objects").is_dir() and not has_manifest(path)


def expand_place(place: str, config: Path) -> list[str]:
    """The folders of plugins that a folder or zip file of the command line holds; itself if there are none.

    A zip file is unpacked once, to a folder of the config directory that is named by its content. Raises InvalidSource.
    """
    path = Path(place)
    if path.is_file():
        path = unpack_once(path, config / "plugins" / "inline")
    with explain_os_errors(f"cannot read {path}", InvalidSource):
        roots = find_roots(path) if path.is_dir() else []
    return [str(root) for root in roots] or [str(path)]


def unpack_once(path: Path, folder: Path) -> Path:
    """Raises InvalidSource."""

    with explain_os_errors(f"cannot read {path}", InvalidSource):
        if path.stat().st_size > MOST_BYTES:
            raise InvalidSource(f"{path} is larger than {MOST_BYTES:,} bytes")
        with path.open("rb") as opened:
            target = folder / file_digest(opened, "sha256").hexdigest()[:40]
    if target.is_dir():
        return target
    with staged(PluginSource(place=str(path)), folder) as source:
        try:
            os.rename(source, target)
        except OSError:
            if not target.is_dir():  # else another session was faster
                raise InvalidSource(f"cannot write to {folder}") from None
    return target


def find_roots(folder: Path) -> list[Path]:
    """The plugins in a folder: the folder itself, or else the folders in it that have a manifest."""
    if has_manifest(folder):
        return [folder]
    return sorted(inner for inner in folder.iterdir() if has_manifest(inner) and not inner.is_symlink())


class LimitedReader:
    """Reads a file that fails after as many bytes as a source may have, the headers of its members included."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._left = MOST_BYTES + 4096 * MOST_FILES

    def read(self, size: int) -> bytes:
        """Raises InvalidSource."""
        data = self._file.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise InvalidSource(f"the source has more than {MOST_BYTES:,} bytes, unpacked")
        return data


def open_packed(path: Path) -> IO[bytes]:
    """A file, decompressed if it is a gzip file."""

    with path.open("rb") as opened:
        is_packed = opened.read(2) == b"\x1f\x8b"
    return cast("IO[bytes]", gzip.GzipFile(path)) if is_packed else path.open("rb")


class SourceMember(NamedTuple):
    """One entry of an archive or a folder."""

    name: str
    size_bytes: int
    mode: int
    is_plain: bool
    """Whether it is a regular file or a folder."""
    is_folder: bool
    open: Callable[[], IO[bytes]]


def write_members(members: Iterable[SourceMember], target: Path) -> None:
    """Write the files of a source, of which names and sizes are limited. Raises InvalidSource."""
    count = size_bytes = 0
    for name, size, mode, is_plain, is_folder, open_member in members:
        check_name(name)
        if not is_plain:
            raise InvalidSource(f"{name!a:.200} is not a regular file or a folder; such archives are refused")
        count += 1
        size_bytes += 0 if is_folder else size
        if count > MOST_FILES or size_bytes > MOST_BYTES:
            raise InvalidSource(f"the source has more than {MOST_FILES:,} files or {MOST_BYTES:,} bytes")
        parts = Path(name).parts
        if set(parts) & set(SKIPPED):
            continue
        place = target.joinpath(*parts)
        (place if is_folder else place.parent).mkdir(0o700, parents=True, exist_ok=True)
        if not is_folder:
            with open_member() as packed, place.open("xb") as new:
                copy_exactly(iter(partial(packed.read, 1 << 16), b""), new, size, place.name)
            place.chmod(0o700 if mode & stat.S_IXUSR else 0o600)


def copy_folder(source: Path, target: Path) -> None:
    """Copy a folder without its repository. Raises InvalidSource."""
    target.mkdir(0o700)
    try:
        write_members(list_members(source), target)
    except OSError as exc:
        raise InvalidSource(f"cannot copy {exc.filename or source}: {exc.strerror}") from None


def list_members(source: Path) -> Iterator[SourceMember]:
    """What is in a folder, without its repository. Raises InvalidSource or OSError."""
    for folder, folders, files in os.walk(source, onerror=raise_error):
        relative = Path(folder).relative_to(source)
        folders[:] = [name for name in folders if name not in SKIPPED]
        for name in folders:
            check_kind(Path(folder, name), relative / name, stat.S_ISDIR)
            yield SourceMember(str(relative / name), 0, 0, True, True, partial(open_regular, Path(folder, name)))
        for name in files:
            if name not in SKIPPED:
                path = find_linked(Path(folder, name), source, relative / name)
                status = check_kind(path, relative / name, stat.S_ISREG)
                open_file = partial(open_regular, path)
                yield SourceMember(str(relative / name), status.st_size, status.st_mode, True, False, open_file)


def find_linked(path: Path, source: Path, shown: Path) -> Path:
    """The file that a link leads to, if that is a file of the same source; any other path as it is."""
    if not path.is_symlink():
        return path
    real, root = os.path.realpath(path), os.path.realpath(source)
    if not safe_read.is_beneath(real, root) or set(SKIPPED) & set(Path(real).relative_to(root).parts):
        raise InvalidSource(f"{shown} is a link that leads out of the plugin; such plugins are refused")
    return Path(real)


def check_name(name: str) -> None:
    """Raises InvalidSource for a path that leads out, or that looks like another one."""
    parts = Path(name).parts
    if name.startswith(("/", "\\")) or "\\" in name or "\0" in name or ".." in parts or name[1:2] == ":":
        raise InvalidSource(f"the archive has a path that points outside it: {name!a:.200}")
    if not name.isprintable():
        raise InvalidSource(f"the name {name!a:.200} has invisible characters; such plugins are refused")


def raise_error(exc: OSError) -> None:
    raise exc


def check_kind(path: Path, shown: Path, is_kind: Callable[[int], bool]) -> os.stat_result:
    """Raises InvalidSource for a link, a pipe or a device."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        raise InvalidSource(f"{shown} is a link to a folder; plugins with such links are refused")
    if not is_kind(status.st_mode):
        raise InvalidSource(f"{shown} is not a regular file")
    return status


def open_regular(path: Path) -> IO[bytes]:
    return open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")


def unpack(path: Path, target: Path, shown: str) -> None:
    """Unpack a zip or tar file, which is found out from its content. Raises InvalidSource."""

    target.mkdir(0o700)
    try:
        if is_zipfile(path):
            with ZipFile(path) as archive:
                write_members(list_zip(archive), target)
        else:
            # As a stream: a member is read, and counted, before the next header is looked for.
            with open_packed(path) as data:
                limited = cast("IO[bytes]", LimitedReader(data))  # a stream needs no more than `read`
                with tarfile.open(fileobj=limited, mode="r|") as packed:
                    write_members(list_tar(packed), target)
    except (BadZipFile, tarfile.TarError) as exc:
        raise InvalidSource(f"{shown} is not a zip file or a tar file: {exc}") from None
    except (OSError, RuntimeError, NotImplementedError, EOFError, ValueError, zlib.error) as exc:
        raise InvalidSource(f"{shown} cannot be unpacked: {exc}") from None


def list_zip(archive: ZipFile) -> Iterator[SourceMember]:
    for entry in archive.infolist():
        mode = entry.external_attr >> 16
        is_plain = stat.S_IFMT(mode) in (0, stat.S_IFREG, stat.S_IFDIR)
        open_entry = partial(archive.open, entry)
        yield SourceMember(entry.filename, entry.file_size, mode, is_plain, entry.is_dir(), open_entry)


def list_tar(archive: TarFile) -> Iterator[SourceMember]:
    for member in archive:
        is_plain = member.isreg() or member.isdir()
        open_member = cast("Callable[[], IO[bytes]]", partial(archive.extractfile, member))  # None for other members
        yield SourceMember(member.name, member.size, member.mode, is_plain, member.isdir(), open_member)


def copy_exactly(chunks: Iterable[bytes], new: IO[bytes], size_bytes: int, name: str) -> None:
    """Write a file of a known or largest size. Raises InvalidSource if it is longer."""
    left = size_bytes
    for chunk in chunks:
        left -= len(chunk)
        if left < 0:
            raise InvalidSource(f"{name!a:.200} is larger than {size_bytes:,} bytes, its stated or largest size")
        new.write(chunk)


def clone(url: str, ref: str, target: Path) -> None:
    """Fetch one state of a repository, without its submodules and hooks. Raises InvalidSource."""
    if ref and REF.fullmatch(ref) is None:
        raise InvalidSource(f"{ref!a:.100} is not the name of a branch, a tag or a commit")
    checkout = target.with_name("checkout")
    checkout.mkdir(0o700)
    origin = url if GIT_URL.fullmatch(url) else os.path.abspath(url)
    fetched = ("fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--", origin, ref or "HEAD")
    for args in (("init", "--quiet"), fetched, ("checkout", "--quiet", "--detach", "FETCH_HEAD")):
        try:
            command = git.prepare(args, os.environ, [os.getcwd()], protocols=PROTOCOLS)
            done = subprocess.run(
                command.argv,
                cwd=checkout,  # the repository of the working directory has no say
                env=command.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=GIT_SECONDS,
                check=False,
            )
        except ToolError as exc:
            raise InvalidSource(str(exc)) from None
        except subprocess.TimeoutExpired:
            raise InvalidSource(f"git did not finish within {GIT_SECONDS} s") from None
        if done.returncode != 0:
            raise InvalidSource(f"git {args[0]} failed: {' '.join(done.stderr.split())[-300:]}")
    copy_folder(checkout, target)
