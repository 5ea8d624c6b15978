from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from parley.errors import UsageError
from parley.testing.launcher_script import write_launcher


def test_the_script_runs_the_command_with_the_arguments_of_its_caller(tmp_path: Path) -> None:
    path = tmp_path / "claude"
    write_launcher(path, ["help", "it's"])
    write_launcher(path, ["help"])

    done = subprocess.run([path, "link"], capture_output=True, text=True, check=True, cwd=tmp_path)

    assert "parley link" in done.stdout


def test_a_file_of_another_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "claude"
    path.write_text("#!/bin/sh\necho mine\n")

    with pytest.raises(UsageError, match="exists and is not replaced"):
        write_launcher(path, ["help"])

    assert path.read_text() == "#!/bin/sh\necho mine\n"


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    path, target = tmp_path / "claude", tmp_path / "target"
    write_launcher(target, ["help"])
    path.symlink_to(target)

    with pytest.raises(UsageError, match="exists and is not replaced"):
        write_launcher(path, ["help"])
