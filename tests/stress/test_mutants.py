"""The program that changes the source: its changes can be compiled, and the tests of a copy notice one that matters."""

from __future__ import annotations

from pathlib import Path

from tests.helpers import paths
from tests.stress import mutants

FILE = "protocol/framing.py"


def test_every_change_can_be_compiled() -> None:
    for file in (FILE, "permissions/decision.py", "engine/turn/turn.py"):
        source = (paths.SOURCE / "parley" / file).read_bytes()
        changes = list(mutants.find_changes(file, source))

        assert changes
        for change in changes:
            changed = source[: change.start] + change.mutant.becomes.encode() + source[change.end :]
            compile(changed, file, "exec")
            assert changed != source


def test_most_of_the_sample_is_still_in_the_source() -> None:
    found = list(mutants.locate(mutants.read_sample()).values())

    assert len(found) >= 300
    assert sum(change is not None for change in found) > len(found) / 2


def test_a_change_that_matters_is_killed_and_the_copy_is_as_before(tmp_path: Path) -> None:
    source = (paths.SOURCE / "parley" / FILE).read_bytes()
    change = next(one for one in mutants.find_changes(FILE, source) if one.mutant.becomes == "return None")
    python = mutants.make_copy(tmp_path)

    assert mutants.is_killed(change, tmp_path, python, {})
    assert (tmp_path / "src" / "parley" / FILE).read_bytes() == source
