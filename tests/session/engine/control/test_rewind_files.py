"""rewind_files as a host asks for it."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.session import Json, SessionHarness

FIRST, SECOND = "11111111-0000-4000-8000-000000000000", "22222222-0000-4000-8000-000000000000"
WRITES = """
[[turn]]
tools = [{{name = "Write", input = {{file_path = "{folder}/new.txt", content = "n\\n"}}}}]
[[turn]]
text = "Done."
[[turn]]
tools = [{{name = "Write", input = {{file_path = "{folder}/other.txt", content = "o\\n"}}}}]
[[turn]]
text = "Done."
"""


class Work(SessionHarness):
    """A room in which two prompts have a file written each."""

    def __init__(self, folder: Path, *, may_rewind: bool = True, **options: object) -> None:
        super().__init__(folder, WRITES.format(folder=folder), **{"permission_mode": "bypassPermissions", **options})
        if may_rewind:
            self.environment["CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING"] = "true"

    async def __aenter__(self) -> Work:
        await super().__aenter__()
        return self

    async def write(self, uuid: str) -> None:
        self.prompt("go", uuid=uuid)
        await self.receive("result")

    async def rewind(self, uuid: str, **fields: object) -> Json:
        """The answer, without what differs from question to question."""
        answer = (await self.request("rewind_files", user_message_id=uuid, **fields))["response"]
        return {name: value for name, value in answer.items() if name != "request_id"}


def files(folder: Path) -> set[str]:
    return {file.name for file in folder.glob("*.txt")}


async def test_a_dry_run_reports_what_a_rewind_does_and_the_rewind_does_it(tmp_path: Path) -> None:
    async with Work(tmp_path) as work:
        await work.write(FIRST)
        assert await work.rewind(FIRST, dry_run=True) == {
            "subtype": "success",
            "response": {
                "canRewind": True,
                "filesChanged": [f"{tmp_path}/new.txt"],
                "insertions": 0,
                "deletions": 1,
            },
        }
        assert files(tmp_path) == {"new.txt"}
        assert await work.rewind(FIRST) == {
            "subtype": "success",
            "response": {"canRewind": True, "skippedLinks": 0},
        }
        assert files(tmp_path) == set()


async def test_a_dry_run_can_show_the_diffs(tmp_path: Path) -> None:
    async with Work(tmp_path) as work:
        await work.write(FIRST)
        await work.write(SECOND)
        (tmp_path / "other.txt").write_text("changed by a person")
        shown = await work.rewind(FIRST, dry_run=True, diffs=True)
        assert "diffs" not in (await work.rewind(FIRST, dry_run=True))["response"]
        assert "diffs" not in (await work.rewind(FIRST, diffs=True))["response"]
    new, other = (f"{tmp_path}/{name}" for name in ("new.txt", "other.txt"))
    assert shown["response"]["diffs"] == [
        {"path": new, "status": "deleted", "diff": f"--- {new}\n+++ {new}\n@@ -1 +0,0 @@\n-n\n", "reason": ""},
        {"path": other, "status": "skipped", "diff": "", "reason": "another program has changed it"},
    ]


async def test_only_what_came_after_the_message_is_rewound(tmp_path: Path) -> None:
    async with Work(tmp_path) as work:
        await work.write(FIRST)
        await work.write(SECOND)
        await work.rewind(SECOND)
    assert files(tmp_path) == {"new.txt"}


async def test_an_unknown_message_is_an_error(tmp_path: Path) -> None:
    async with Work(tmp_path) as work:
        answer = await work.rewind("unknown-id")
    assert answer["error"] == "No file checkpoint found for this message."


async def test_a_host_that_did_not_enable_it_may_not_rewind(tmp_path: Path) -> None:
    async with Work(tmp_path, may_rewind=False) as work:
        await work.write(FIRST)
        answer = await work.rewind(FIRST)
    assert answer["error"] == "File rewinding is not enabled."
    assert files(tmp_path) == {"new.txt"}


async def test_a_later_edit_is_reported_and_never_lost(tmp_path: Path) -> None:
    async with Work(tmp_path) as work:
        await work.write(FIRST)
        await work.write(SECOND)
        (tmp_path / "new.txt").write_text("theirs")
        left = f"Not rewound: {tmp_path}/new.txt (another program has changed it)"
        assert (await work.rewind(FIRST, dry_run=True))["response"]["error"] == left
        answer = await work.rewind(FIRST)
        assert answer["response"] == {"canRewind": True, "error": left, "skippedLinks": 0}
        assert (await work.rewind(FIRST))["error"] == left
        assert (await work.rewind(FIRST, dry_run=True))["response"]["canRewind"] is False
    assert (tmp_path / "new.txt").read_text() == "theirs"
    assert files(tmp_path) == {"new.txt"}


async def test_a_resumed_session_can_be_rewound(tmp_path: Path) -> None:
    async with Work(tmp_path) as work:
        await work.write(FIRST)
        session_id = work.session.id
    async with Work(tmp_path, resume=session_id) as work:
        assert (await work.rewind(FIRST))["subtype"] == "success"
    assert files(tmp_path) == set()


async def test_a_fork_can_be_rewound_and_the_older_session_still_too(tmp_path: Path) -> None:
    async with Work(tmp_path) as work:
        await work.write(FIRST)
        session_id = work.session.id
    forks: tuple[Json, ...] = ({"fork_session": True, "session_id": SECOND}, {})
    for fork in forks:
        (tmp_path / "new.txt").write_text("n\n")
        async with Work(tmp_path, resume=session_id, **fork) as work:
            assert (await work.rewind(FIRST))["subtype"] == "success"
        assert files(tmp_path) == set()


async def test_a_session_that_is_not_kept_leaves_no_history(tmp_path: Path) -> None:
    async with Work(tmp_path, no_session_persistence=True) as work:
        await work.write(FIRST)
        assert (await work.rewind(FIRST))["subtype"] == "success"
    assert files(tmp_path) == set()
    assert list(tmp_path.glob("home/.claude/file-history/*")) == []


async def test_what_a_command_changed_is_rewound_where_the_tree_is_watched(tmp_path: Path) -> None:
    (tmp_path / "gone.txt").write_text("old")
    work = Work(tmp_path)
    work.environment["PARLEY_SNAPSHOT_TREE"] = "1"
    command = "rm gone.txt; echo made > made.txt"
    script = f'[[turn]]\ntools = [{{name = "Bash", input = {{command = "{command}"}}}}]\n[[turn]]\ntext = "Done."\n'
    (tmp_path / "script.toml").write_text(script)
    async with work as harness:
        await harness.write(FIRST)
        assert files(tmp_path) == {"made.txt"}
        assert (await harness.rewind(FIRST))["subtype"] == "success"

    assert files(tmp_path) == {"gone.txt"}
    assert (tmp_path / "gone.txt").read_text() == "old"
