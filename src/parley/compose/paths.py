"""Where a session puts what is not its log: long output, that of tasks, the plan, earlier states of files."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from parley.compose.launch_context import Basis
from parley.engine.tasks.task import Place
from parley.stores.files.claude import project_key
from parley.workspace import private_files


def plan_file(basis: Basis, session_id: str) -> Path:
    return basis.config / "plans" / f"{session_id}.md"


def results_folder(basis: Basis, session_id: str) -> Path:
    return beside_log(basis, session_id) / "tool-results"


def task_place(basis: Basis, session_id: str) -> Place:
    """Where the output of background tasks goes."""
    temporary = basis.environment.get("CLAUDE_CODE_TMPDIR") or basis.environment.get("TMPDIR") or "/tmp"
    return Place(
        temporary=Path(temporary),
        names=(f"claude-{os.getuid()}", project_key(basis.cwd), session_id, "tasks"),
        otherwise=beside_log(basis, session_id) / "tasks",
    )


def beside_log(basis: Basis, session_id: str) -> Path:
    return basis.config / "projects" / project_key(basis.cwd) / session_id


def own_folders(basis: Basis, session_id: str) -> tuple[str, ...]:
    """Where a session puts what its model shall read: by the names we use, and by those without a link above them.

    What the user named may be a link; below that, a link is nobody's but a stranger's, and counts for nothing.
    """
    place = task_place(basis, session_id)
    ours = [results_folder(basis, session_id), place.otherwise, plan_file(basis, session_id)]
    roots = [*((basis.config, path) for path in ours), (place.temporary, place.temporary.joinpath(*place.names))]
    real = (Path(os.path.realpath(root), path.relative_to(root)) for root, path in roots)
    return tuple(dict.fromkeys(map(str, (*(path for _, path in roots), *real))))


def file_history(basis: Basis, session_id: str) -> Path:
    return basis.config / "file-history" / session_id


def forget_history(basis: Basis, session_id: str) -> None:
    """Delete the earlier states of files of a session that is deleted."""
    with suppress(OSError):
        private_files.remove_tree(file_history(basis, session_id), below=1)


def project_name(cwd: str) -> str:
    """The name under which what belongs to a folder is kept."""
    return project_key(cwd)
