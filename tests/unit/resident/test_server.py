"""A server ends when the code that it has loaded changes."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("resource")

from parley.resident.server import CodeFiles


def test_a_change_of_a_loaded_file_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plugin.py"
    path.write_text("A = 1\n")
    module = ModuleType("plugin_of_a_test")
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    code = CodeFiles()
    assert code.is_current()
    path.write_text("A = 12\n")
    assert not code.is_current()
    path.unlink()
    assert not code.is_current()


def test_a_package_that_is_installed_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed, other = tmp_path / "site-packages", tmp_path / "src"
    for folder in (installed, other):
        folder.mkdir()
        monkeypatch.syspath_prepend(str(folder))
    code = CodeFiles()
    (other / "notes.txt").touch()
    assert code.is_current()
    (installed / "extension-1.0.dist-info").mkdir()
    assert not code.is_current()
