"""The fields of `system/init` that follow from what the session was given."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.session import SessionHarness

HELLO = "at_end = 'repeat'\n[[turn]]\ntext = 'Hello.'\n"


async def test_init_lists_the_working_directories_outside_the_first(tmp_path: Path) -> None:
    project, other, later = (tmp_path / name for name in ("project", "other", "later"))
    for folder in (project / "inside", other, later):
        folder.mkdir(parents=True)
    async with SessionHarness(project, HELLO, add_dirs=("../other", "inside")) as harness:
        harness.prompt("go")
        await harness.receive("result")
        settings = {"permissions": {"additionalDirectories": [str(later)]}}
        await harness.request("apply_flag_settings", settings=settings)
        harness.prompt("go")
        await harness.receive("result")

    first, second = [line for line in harness.messages("system") if line["subtype"] == "init"]
    assert first["additional_directories"] == [str(other)]
    assert second["additional_directories"] == [str(other), str(later)]


async def test_init_lists_no_other_directories_by_default(tmp_path: Path) -> None:
    async with SessionHarness(tmp_path, HELLO) as harness:
        harness.prompt("go")
        await harness.receive("result")

    (init,) = [line for line in harness.messages("system") if line["subtype"] == "init"]
    assert init["additional_directories"] == []
