"""Git, as we run it ourselves: nothing that a repository configures is executed, and nothing is fetched.

    git = Git(processes, environment, lambda: ["/home/me/project"])      # the folders that the session can change
    await git.run("/home/me/project", "status", "--porcelain")

Before each command the configuration of the repository is read, whole, and its filters and hooks are overridden. If it
cannot be read whole, or includes other files, the command is refused: which files are included may depend on the
branch and the folder, and a file of the working tree could change in between.

See also: `prepare` for a command that is not about a repository, such as `git clone`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from parley.errors import ToolError
from parley.workspace.process.processes import PreparedCommand, Processes
from parley.workspace.search_path import find_trusted, with_trusted_path

TIMEOUT_SECONDS = 120.0
MAX_OUTPUT_BYTES = 8 << 20
SAFE_CONFIG = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.pager": "cat",
    "core.editor": "false",
    "core.alternateRefsCommand": "false",
    "log.showSignature": "false",  # it would run gpg.program
    "safe.bareRepository": "explicit",  # files of the working tree could look like a repository
    "submodule.recurse": "false",
    "protocol.allow": "never",
    "gc.auto": "0",
    "maintenance.auto": "false",
}
NEUTRAL_SETTINGS = {
    "filter": {"clean": "", "smudge": "", "process": "", "required": "false"},
    "hook": {"enabled": "false"},
}
"""For each name below such a section: what makes git run none of its programs."""
SAFE_ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_ALLOW_PROTOCOL": "none",
}
"""A repository's `protocol.ext.allow` would override our `protocol.allow`, but not GIT_ALLOW_PROTOCOL."""
KEPT_VARIABLES = frozenset(
    {"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_CEILING_DIRECTORIES"}
    | {"GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_ASKPASS", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH"}
)
"""The user's own set-up. Other variables of git would make it use another repository or run other programs."""
OWN_SCOPES = frozenset({"local", "worktree"})
HARMLESS_LFS = (".repositoryformatversion", ".access", ".locksverify")
"""What git-lfs itself writes into a repository. With other settings it runs programs or sends files elsewhere."""


class GitFailed(ToolError):
    """A git command failed. The message is git's."""


class GitCommand(NamedTuple):
    argv: list[str]
    environment: dict[str, str]


class RepositoryConfig(NamedTuple):
    keys: frozenset[str]
    """What the repository itself sets."""
    overrides: dict[str, str]
    """The settings that disable its programs."""


def prepare(
    args: Iterable[str],
    environment: Mapping[str, str],
    changeable: Iterable[str],
    settings: Mapping[str, str] = {},
    *,
    protocols: str = "none",
) -> GitCommand:
    """A git command that runs no programs but the user's. Raises ToolError if git is not found."""
    program = find_trusted("git", environment, changeable := tuple(changeable))
    if program is None:
        raise ToolError("git was not found on the PATH, apart from folders that the session or other users can change.")
    kept = {name: value for name, value in environment.items() if not name.startswith("GIT_") or name in KEPT_VARIABLES}
    config = {**SAFE_CONFIG, **settings}
    numbered = {"GIT_CONFIG_COUNT": str(len(config)), "GIT_ALLOW_PROTOCOL": protocols}
    for number, (name, value) in enumerate(config.items()):
        numbered |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return GitCommand([program, *args], {**with_trusted_path(kept, changeable), **SAFE_ENVIRONMENT, **numbered})


class Git:
    def __init__(
        self, processes: Processes, environment: Mapping[str, str], list_changeable: Callable[[], Iterable[str]]
    ) -> None:
        self._processes = processes
        self._environment = environment
        self._list_changeable = list_changeable

    async def run(self, cwd: str, *args: str, other_folder: str = "") -> str:
        """Run a command and return its output.

        `other_folder` is one that git itself enters. Raises GitFailed, or ToolError if it cannot be run safely.
        """
        overrides = (await self.read_config(cwd)).overrides
        if other_folder and os.path.isdir(other_folder):  # noqa: ASYNC240  # as quick as the command that follows
            overrides |= (await self.read_config(other_folder)).overrides
        return await self._run(cwd, args, overrides)

    async def read_config(self, cwd: str) -> RepositoryConfig:
        """What the repository of a folder configures. Raises ToolError if that is not certain."""
        try:
            listed = await self._run(cwd, ("config", "--list", "-z", "--show-scope", "--name-only"), {})
        except GitFailed as exc:
            raise ToolError(f"the configuration of the git repository in {cwd} cannot be read: {exc}") from None
        return parse_config(listed, cwd)

    async def _run(self, cwd: str, args: tuple[str, ...], settings: Mapping[str, str]) -> str:
        command = prepare(args, self._environment, self._list_changeable(), settings)
        output, errors = bytearray(), bytearray()

        def take(data: bytes) -> None:
            output.extend(data[: MAX_OUTPUT_BYTES + 1 - len(output)])

        def take_errors(data: bytes) -> None:
            errors.extend(data[: MAX_OUTPUT_BYTES - len(errors)])

        prepared = PreparedCommand(argv=command.argv, cwd=cwd, environment=command.environment)
        running = await self._processes.start(prepared, take, take_errors)
        try:
            end, timed_out = await self._processes.wait(running, TIMEOUT_SECONDS)
        finally:
            running.drop()
        if timed_out or end.error:
            raise ToolError(end.error or f"git {args[0]} took longer than {TIMEOUT_SECONDS:.0f} s.")
        if len(output) > MAX_OUTPUT_BYTES:
            raise ToolError(f"git {args[0]} printed more than {MAX_OUTPUT_BYTES >> 20} MiB.")
        if end.exit_code != 0:
            raise GitFailed(errors.decode(errors="replace").strip() or f"git {args[0]} exited with {end.exit_code}")
        return output.decode(errors="surrogateescape")


def parse_config(listed: str, cwd: str) -> RepositoryConfig:
    """Read `git config --list -z --show-scope --name-only`. Raises ToolError if the repository includes files."""
    fields = listed.split("\0")[:-1]
    pairs = list(zip(fields[::2], fields[1::2], strict=True))
    keys = frozenset(key for scope, key in pairs if scope in OWN_SCOPES)
    if any(key.startswith(("include.", "includeif.")) for key in keys):
        raise ToolError(
            f"the configuration of the git repository in {cwd} includes other files, so what it runs is not certain."
        )
    # The user's own git-lfs reads settings of the repository that name programs.
    extends_lfs = any(key.startswith("lfs.") and not key.endswith(HARMLESS_LFS) for key in keys)
    overrides: dict[str, str] = {}
    for scope, key in pairs:
        section, _, rest = key.partition(".")
        name, dot, _ = rest.rpartition(".")
        if dot and section in NEUTRAL_SETTINGS and (scope in OWN_SCOPES or (extends_lfs and section == "filter")):
            overrides |= {f"{section}.{name}.{part}": value for part, value in NEUTRAL_SETTINGS[section].items()}
    return RepositoryConfig(keys, overrides)
