"""What everything is made from: the options, the surroundings, and the settings that they lead to."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from parley.engine.clock import Stamp
from parley.errors import UsageError
from parley.protocol.options import Options
from parley.settings import credentials, sources
from parley.settings.env_vars import child_environment, truthy
from parley.settings.safe_read import Unfit
from parley.settings.safe_read import read as read_file
from parley.settings.session_settings import Desk
from parley.stores.files.entry_codec import Context as LineContext
from parley.version import PROTOCOL_LEVEL


class Basis:
    def __init__(self, options: Options, environment: dict[str, str], cwd: str, stamp: Stamp | None = None) -> None:
        """Raises UsageError if the settings on the command line are wrong."""
        self.options = options
        self.cwd = cwd
        self.stamp = stamp or Stamp()
        self.is_restricted = options.restricted or truthy(environment.get("CLAUDE_CODE_RESTRICTED"))
        """Whether no files of settings count, no commands run, and only the working directories are open."""
        self.config = sources.config_folder(environment)
        wanted = sources.Wanted(
            config=self.config,
            project=os.path.normpath(os.path.join(cwd, options.project_config_root or ".")),
            given=options.settings,
            managed=options.managed_settings,
            sources=() if self.is_restricted else options.setting_sources,
            bare=options.bare,
            managed_hooks_only=options.safe_mode,
        )
        self.settings = Desk(wanted, environment, child_environment)
        self.environment = self.settings.environment()
        """What the process was given, and the `env` of settings that may speak for the person."""
        self.complain: Callable[[str], None] = lambda text: None
        """Where warnings go."""

    @property
    def home(self) -> Path:
        return sources.home(self.environment)

    def credentials(self) -> credentials.Places:
        """Where a key may be found."""
        return credentials.Places(
            flag=self.options.api_key,
            environment=self.environment,
            settings=self.settings.merged.plain(),
            home=self.home,
        )

    def folders(self) -> tuple[str, ...]:
        """The working directories beside the first, absolute."""
        added = (os.path.normpath(os.path.join(self.cwd, folder)) for folder in self.options.add_dirs or ())
        return tuple(dict.fromkeys([*added, *self.settings.folders()]))

    def line_context(self) -> LineContext:
        """What every line of a session says of its surroundings."""
        entrypoint = self.environment.get("CLAUDE_CODE_ENTRYPOINT", "sdk-cli")
        branch = git_branch(Path(self.cwd))
        return LineContext(cwd=self.cwd, version=PROTOCOL_LEVEL, entrypoint=entrypoint, git_branch=branch)

    def short_id(self) -> str:
        """A new id that is short enough for names the model reads."""
        return self.stamp.new_uuid().replace("-", "")[-24:]


def git_branch(folder: Path) -> str:
    """The branch a folder is on, read from git's own file; "" outside a repository."""
    for place in (folder, *folder.parents):
        try:
            text = read_file(place / ".git" / "HEAD", most_bytes=1000).data.decode().strip()
        except (Unfit, UnicodeDecodeError):
            continue
        return text.removeprefix("ref: refs/heads/") if text.startswith("ref: ") else text[:12]
    return ""


def working_directory() -> str:
    """Raises UsageError if the folder we were started in is gone."""
    try:
        return os.getcwd()
    except OSError:
        raise UsageError("the working directory does not exist any more") from None
