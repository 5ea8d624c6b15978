"""Several sessions in one process share nothing but the process."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.session import SessionHarness


async def test_two_sessions_in_one_process_keep_apart(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    async with (
        SessionHarness(folders[0], "[[turn]]\ntext = 'A'") as one,
        SessionHarness(folders[1], "[[turn]]\ntext = 'B'") as two,
    ):
        one.prompt("go")
        two.prompt("go")
        results = [await one.receive("result"), await two.receive("result")]
    assert [result["result"] for result in results] == ["A", "B"]
    assert [next(harness.messages("system"))["cwd"] for harness in (one, two)] == [str(folder) for folder in folders]
