"""Where a session puts files other than its log: long output, task output, the plan, file checkpoints."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from parley.compose.launch_context import LaunchContext
from parley.settings.base import TREE
from parley.stores.files.store import project_key
from parley.workspace import private_files
from parley.workspace.process.processes import OutputDirectory


def plan_file(launch: LaunchContext, session_id: str) -> Path:
    if launch.remote is not None:
        return launch.remote.own_folder / "plan.md"
    standard = launch.config / "plans" / f"{session_id}.md"
    setting = launch.settings.merged.values.get("plansDirectory")
    if setting is None:
        return standard
    folder = os.path.normpath(os.path.join(launch.cwd, os.path.expanduser(setting.value)))
    if setting.source in TREE and not folder.startswith(launch.cwd.rstrip("/") + "/"):
        launch.warn(f"settings: {setting.path}: plansDirectory must be inside the project; the default is used")
        return standard
    return Path(folder, f"{session_id}.md")


def results_folder(launch: LaunchContext, session_id: str) -> Path:
    return session_directory(launch, session_id) / "tool-results"


def task_output_directory(launch: LaunchContext, session_id: str) -> OutputDirectory:
    """The folder for the output of background tasks."""
    if launch.remote is not None:
        from parley.compose.workspace.remote import RemoteOutputDirectory

        own = launch.remote.own_folder
        return RemoteOutputDirectory(temporary=own, names=("tasks",), fallback=own / "tasks")
    temporary = launch.environment.get("CLAUDE_CODE_TMPDIR") or launch.environment.get("TMPDIR") or "/tmp"
    return OutputDirectory(
        temporary=Path(temporary),
        names=(f"claude-{os.getuid()}", project_key(launch.cwd), session_id, "tasks"),
        fallback=session_directory(launch, session_id) / "tasks",
    )


def session_directory(launch: LaunchContext, session_id: str) -> Path:
    if launch.remote is not None:
        return launch.remote.own_folder
    return launch.config / "projects" / project_key(launch.cwd) / session_id


def own_folders(launch: LaunchContext, session_id: str) -> tuple[str, ...]:
    """Where a session puts what its model shall read: by the names we use, and by those without a link above them.

    The directory that the user named may be a symlink. A symlink below it is not followed, because others may have
    planted it.
    """
    if launch.remote is not None:
        remote = (results_folder(launch, session_id), launch.remote.own_folder / "tasks", plan_file(launch, session_id))
        return tuple(map(str, remote))
    place = task_output_directory(launch, session_id)
    ours, plan = [results_folder(launch, session_id), place.fallback], plan_file(launch, session_id)
    roots = [*((launch.config, path) for path in ours), (place.temporary, place.temporary.joinpath(*place.names))]
    roots.append((launch.config if plan.is_relative_to(launch.config) else plan.parent, plan))
    real = (Path(os.path.realpath(root), path.relative_to(root)) for root, path in roots)
    return tuple(dict.fromkeys(map(str, (*(path for _, path in roots), *real))))


def file_history(launch: LaunchContext, session_id: str) -> Path:
    return launch.config / "file-history" / session_id


def forget_history(launch: LaunchContext, session_id: str) -> None:
    """Delete the file checkpoints of a session that is deleted."""
    with suppress(OSError):
        private_files.remove_tree(file_history(launch, session_id), below=1)


def project_name(cwd: str) -> str:
    """The name of the folder for files of a project."""
    return project_key(cwd)
