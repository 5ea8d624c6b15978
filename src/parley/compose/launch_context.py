"""What a session is made from: the options, the environment, and the settings they lead to. Nothing is added later.

The functions say where a session puts files other than its log: long output, task output, the plan, file checkpoints.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from parley.engine.clock import Clock
from parley.engine.session.config import LINE_CAP_BYTES
from parley.errors import SessionError, UsageError
from parley.protocol.options import CliOptions
from parley.settings import credentials, sources
from parley.settings.base import TREE, MergedSettings
from parley.settings.env_vars import OptionValues, child_environment, is_truthy
from parley.settings.safe_read import HOST_TREE, FileTree, UnreadableFile
from parley.settings.session_settings import SessionSettings
from parley.stores.files.entry_codec import EntryContext as LineContext
from parley.stores.files.store import project_key
from parley.version import PROTOCOL_LEVEL
from parley.workspace import private_files
from parley.workspace.base import Worktree
from parley.workspace.process.processes import OutputDirectory

if TYPE_CHECKING:
    from parley.compose.remote import RemoteAccess
    from parley.models.http.call import Deadlines


T = TypeVar("T")
MIN_LINE_BYTES = 50_000


def ignore(text: str) -> None:
    """Where warnings go if no one reads them."""


class LaunchContext:
    def __init__(
        self,
        options: CliOptions,
        environment: dict[str, str],
        cwd: str,
        clock: Clock | None = None,
        worktree: Worktree | None = None,
        warn: Callable[[str], None] = ignore,
    ) -> None:
        """Raises UsageError if the settings on the command line are wrong."""
        self.options: Final = options
        self.warn: Final = warn
        self.host_folder: Final = cwd
        """Where the process was started. Files that the command line names are relative to it."""
        self.remote: Final = open_remote(options, environment, warn)
        """The workspace on another machine, if the session has one."""
        cwd = cwd if self.remote is None else self.remote.welcome.cwd
        self.started_in: Final = cwd
        """Where the process was started: its settings, memory files and rules apply, also in a worktree."""
        self.worktree: Final = worktree
        self.cwd: Final = cwd if worktree is None else worktree.cwd
        """Where the session works."""
        self.clock: Final = clock or Clock()
        self.is_restricted: Final = options.restricted or is_truthy(environment.get("CLAUDE_CODE_RESTRICTED"))
        """Whether settings files are ignored, no commands run, and only the working directories are accessible."""
        self.config: Final = sources.config_folder(environment)
        self.user_file: Final = sources.user_file(environment)
        """Claude Code's `.claude.json`."""
        wanted = sources.SourceSelection(
            config=self.config,
            project=os.path.normpath(os.path.join(cwd, options.project_config_root or ".")),
            given=options.settings,
            managed=options.managed_settings,
            sources=() if self.is_restricted else options.setting_sources,
            bare=options.bare,
            managed_hooks_only=options.safe_mode,
            user_file=self.user_file,
            tree=HOST_TREE if self.remote is None else self.remote.tree,
        )
        commands = None if self.remote is None else self.remote.environment
        self.settings: Final[SessionSettings] = self.with_facts(
            lambda: SessionSettings(wanted, environment, child_environment, commands, self.find_sandbox_problem)
        )
        self.environment: Final = self.settings.environment()
        """The environment of the process, with the `env` of the settings that may set it."""

    def find_sandbox_problem(self, merged: MergedSettings) -> str:
        """Why commands cannot run in a sandbox on their machine; "" if they can."""
        from parley.compose.sandbox import offer_for

        offer = offer_for(merged, is_remote=self.remote is not None)
        return offer.reason if offer.kind == "none" else ""

    @property
    def tree(self) -> FileTree:
        """Where the project is."""
        return HOST_TREE if self.remote is None else self.remote.tree

    def with_facts(self, work: Callable[[], T]) -> T:
        """Do work that reads the project, with few round trips to a remote one. Raises SessionError."""
        if self.remote is None:
            return work()
        found: T = self.remote.run(work)
        return found

    @property
    def home(self) -> Path:
        return sources.home(self.environment)

    def credentials(self) -> credentials.CredentialSources:
        """Where a key can be found."""
        return credentials.CredentialSources(
            flag=self.options.api_key,
            environment=self.environment,
            settings=self.settings.merged.to_json(),
            home=self.home,
            folders=(str(self.cwd), *self.additional_directories()),
        )

    def additional_directories(self) -> tuple[str, ...]:
        """The working directories besides the first, absolute."""
        added = (os.path.normpath(os.path.join(self.started_in, folder)) for folder in self.options.add_dirs or ())
        return tuple(dict.fromkeys([*added, *self.settings.folders()]))

    def line_context(self) -> LineContext:
        """What every line of a transcript says about the session."""
        entrypoint = self.environment.get("CLAUDE_CODE_ENTRYPOINT", "sdk-cli")
        branch = ""
        with suppress(SessionError):  # a remote workspace that is away is not a reason to lose the log
            branch = self.with_facts(lambda: git_branch(Path(self.cwd), self.tree))
        return LineContext(cwd=self.cwd, version=PROTOCOL_LEVEL, entrypoint=entrypoint, git_branch=branch)


def open_remote(options: CliOptions, environment: dict[str, str], report: Callable[[str], None]) -> RemoteAccess | None:
    if options.workspace is None:
        return None
    from parley.compose.remote import RemoteAccess

    return RemoteAccess(options, environment, report)


def git_branch(directory: Path, tree: FileTree = HOST_TREE) -> str:
    """The branch of a folder; the start of a commit if none is checked out. Empty outside a repository."""
    text = read_git_head(str(directory), tree)
    return text.removeprefix("ref: refs/heads/") if text.startswith("ref: ") else text[:12]


def read_git_head(folder: str, tree: FileTree) -> str:
    """What is checked out, from git's own file: git is not run before anybody has asked for it."""
    checkout = find_checkout(folder, tree)
    if checkout is None:
        return ""
    git = os.path.join(checkout, ".git")
    with suppress(UnreadableFile, UnicodeDecodeError):
        # In a worktree, `.git` is a file that names the folder.
        named = tree.read_file(git, most_bytes=5000).data.decode()
        git = os.path.join(checkout, named.removeprefix("gitdir:").strip())
    with suppress(UnreadableFile, UnicodeDecodeError):
        return tree.read_file(os.path.join(git, "HEAD"), most_bytes=1000).data.decode().strip()
    return ""


def find_checkout(folder: str, tree: FileTree) -> str | None:
    """The folder of the git repository that a folder is in, without asking git."""
    while not tree.lexists(os.path.join(folder, ".git")):
        folder, child = os.path.dirname(folder), folder
        if folder == child:
            return None
    return folder


def working_directory() -> str:
    """Raises UsageError if the working directory was deleted."""
    try:
        return os.getcwd()
    except OSError:
        raise UsageError("the working directory no longer exists") from None


def option_values(launch: LaunchContext) -> OptionValues:
    merged = launch.settings.merged
    return OptionValues(launch.options, launch.environment, merged.get, merged.managed_limits())


def max_line_bytes(launch: LaunchContext) -> int:
    """The longest line that is sent."""
    return max(MIN_LINE_BYTES, launch.options.max_line_bytes or LINE_CAP_BYTES)


def make_deadlines(launch: LaunchContext) -> Deadlines:
    """How long to wait for a silent backend. Raises UsageError."""
    from parley.models.http.call import Deadlines

    return Deadlines.from_settings(option_values(launch).deadlines())


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
        from parley.compose.remote import RemoteOutputDirectory

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
