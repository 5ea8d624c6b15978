"""Load modules from one file of bytecode, if parley is installed.

Python finds, opens and checks a file for each module. For the 230 modules of a start, that takes an eighth of its time.
The executable reads the bytecode of its own modules and of the standard library from one file instead. A run that
misses many modules in the file writes it when it ends, beside the `.pyc` files. As with those, bytecode is used only if
its source has the same size and modification time as when it was compiled.

Apart from where the bytecode comes from, modules are loaded by Python's own loader, so tracebacks and `inspect` work.
In a checkout, in a zip file, and where the file cannot be written, modules are loaded as usual.
"""

from __future__ import annotations

import atexit
import marshal
import os
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader

from parley.version import __version__

TYPE_CHECKING = False  # importing typing takes 10 ms
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, ModuleType
    from typing import BinaryIO

    Stamp = tuple[int, int] | None
    Entry = tuple[str, str | None, bool, Stamp, int, int]
    """Source, `.pyc`, whether it is a package, stamp of the source, place of the bytecode, its length."""

PACKAGE = os.path.dirname(os.path.dirname(__file__))
FOLDERS = (PACKAGE + os.sep, os.path.dirname(os.__file__) + os.sep)
NAMES = {"parley", *sys.stdlib_module_names}
HEAD = f"bytecode of parley {__version__} in {PACKAGE} for Python {sys.version}\n".encode()
"""The start of the file. Another version and another Python have other bytecode."""
OFFSET_BYTES = 8
"""After the head comes the offset of the index, which is at the end."""
MANY = 12
"""A run that misses more modules than this writes the file."""
CORRUPT = (OSError, EOFError, TypeError, ValueError)


def install() -> None:
    """Load modules from the file from now on."""
    if any(isinstance(finder, Bundle) for finder in sys.meta_path):
        return  # by the server that this process was forked from
    if __spec__.cached is None or os.path.basename(os.path.dirname(PACKAGE)) not in ("site-packages", "dist-packages"):
        return
    folder, name = os.path.split(__spec__.cached)
    bundle = Bundle(os.path.join(folder, name.replace("bundle", "bundled", 1)))
    sys.meta_path.insert(0, bundle)
    atexit.register(bundle.update)


class Bundle:
    """The file, as a finder of modules. It stays open, so that replacing it does not change what is read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = -1
        self._entries: dict[str, Entry] = {}
        self._missed: list[str] = []
        try:
            self._file = os.open(path, os.O_RDONLY)
            head, offset = self._read(0, len(HEAD)), int.from_bytes(self._read(len(HEAD), OFFSET_BYTES), "big")
            if head == HEAD:
                self._entries = marshal.loads(self._read(offset, os.fstat(self._file).st_size - offset))
        except CORRUPT:
            pass

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> ModuleSpec | None:
        if name.partition(".")[0] not in NAMES:
            return None
        spec = self._find(name)
        if spec is None:
            self._missed.append(name)
        return spec

    def _find(self, name: str) -> ModuleSpec | None:
        """The spec of a module that has not changed since its bytecode was written."""
        entry = self._entries.get(name)
        if entry is None or find_stamp(entry[0]) != entry[3]:
            return None
        source, cached, is_package, *_ = entry
        spec = ModuleSpec(name, BundleLoader(name, source, self), origin=source, is_package=is_package)
        spec.has_location, spec.cached = True, cached
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(os.path.dirname(source))
        return spec

    def load(self, name: str) -> CodeType:
        """The code of a module. Raises one of CORRUPT."""
        *_, offset, length = self._entries[name]
        code: CodeType = marshal.loads(self._read(offset, length))
        return code

    def _read(self, offset: int, length: int) -> bytes:
        return os.pread(self._file, length, offset)

    def update(self) -> None:
        """Write the file, if this run has missed many modules."""
        from parley._launched import is_forked
        from parley.workspace import private_files

        missed = [name for name in self._missed if find_loaded(name) is not None]
        if len(missed) <= MANY or sys.dont_write_bytecode or is_forked():
            return  # a resident engine writes it at its own end, not at the end of each session
        folder, name = os.path.split(self._path)
        try:
            with (
                private_files.open_folder(folder) as (opened, _),
                private_files.replacing(opened, name, mode=0o666) as new,
                os.fdopen(new, "wb", closefd=False) as file,
            ):
                file.write(HEAD + bytes(OFFSET_BYTES))
                entries = {name: entry for name in [*self._entries, *missed] if (entry := self._copy(name, file))}
                offset = file.tell()
                file.write(marshal.dumps(entries))
                file.seek(len(HEAD))
                file.write(offset.to_bytes(OFFSET_BYTES, "big"))
        except OSError:
            return  # without the file, starts are only slower

    def _copy(self, name: str, file: BinaryIO) -> Entry | None:
        """Append the bytecode of a module. Raises OSError."""
        spec = self._find(name) or find_loaded(name)
        if spec is None:
            return None
        assert isinstance(spec.loader, SourceFileLoader)
        source = spec.loader.path
        stamp = find_stamp(source)  # before the code is read, in case the source is changed in between
        code = marshal.dumps(spec.loader.get_code(name))
        offset = file.tell()
        file.write(code)
        return source, spec.cached, spec.submodule_search_locations is not None, stamp, offset, len(code)


class BundleLoader(SourceFileLoader):
    """Python's loader, with bytecode from the bundle."""

    def __init__(self, name: str, path: str, bundle: Bundle) -> None:
        super().__init__(name, path)
        self._bundle = bundle

    def get_code(self, fullname: str) -> CodeType | None:
        try:
            return self._bundle.load(fullname)
        except CORRUPT:
            return super().get_code(fullname)


def find_loaded(name: str) -> ModuleSpec | None:
    """The spec of a module that was loaded from a source file of parley or of the standard library."""
    spec: ModuleSpec | None = getattr(sys.modules.get(name), "__spec__", None)
    if spec is None or not isinstance(spec.loader, SourceFileLoader) or not spec.loader.path.startswith(FOLDERS):
        return None
    return spec


def find_stamp(source: str) -> Stamp:
    """What changes when a file is changed; None if it cannot be found."""
    try:
        found = os.stat(source)
    except OSError:
        return None
    return int(found.st_mtime), found.st_size  # whole seconds, because archives and images keep no more
