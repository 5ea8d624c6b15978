"""What a session is made from: the options, the environment, and the settings they lead to. Nothing is added later."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from parley.engine.clock import Clock
from parley.errors import SessionError, UsageError
from parley.protocol.options import CliOptions
from parley.settings import credentials, sources
from parley.settings.base import MergedSettings
from parley.settings.env_vars import child_environment, is_truthy
from parley.settings.safe_read import HOST_TREE, FileTree, UnreadableFile
from parley.settings.session_settings import SessionSettings
from parley.stores.files.entry_codec import EntryContext as LineContext
from parley.version import PROTOCOL_LEVEL
from parley.workspace.base import Worktree

if TYPE_CHECKING:
    from parley.compose.workspace.remote import RemoteAccess

T = TypeVar("T")


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
        from parley.compose.workspace.sandbox import offer_for

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
    from parley.compose.workspace.remote import RemoteAccess

    return RemoteAccess(options, environment, report)


def git_branch(directory: Path, tree: FileTree = HOST_TREE) -> str:
    """The branch of a folder, read from git's own file; empty outside a repository."""
    for place in (directory, *directory.parents):
        try:
            text = tree.read_file(git_folder(place, tree) / "HEAD", most_bytes=1000).data.decode().strip()
        except (UnreadableFile, UnicodeDecodeError):
            continue
        return text.removeprefix("ref: refs/heads/") if text.startswith("ref: ") else text[:12]
    return ""


def git_folder(checkout: Path, tree: FileTree) -> Path:
    """Where git keeps what belongs to a checkout. In a worktree, `.git` is a file that names it."""
    path = checkout / ".git"
    try:
        named = tree.read_file(path, most_bytes=5000).data.decode()
    except (UnreadableFile, UnicodeDecodeError):
        return path
    return checkout / named.removeprefix("gitdir:").strip()


def working_directory() -> str:
    """Raises UsageError if the working directory was deleted."""
    try:
        return os.getcwd()
    except OSError:
        raise UsageError("the working directory no longer exists") from None
