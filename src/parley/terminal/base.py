"""What slash commands, the status line and the rewind may use of the application.

async def show_cost(view: View, argument: str) -> None:
    view.print(format_cost(await view.client.get_usage(), view.styles))

COMMANDS = (TerminalCommand("cost", "What this session has cost", show_cost),)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from parley.terminal.rendering.style import Styles

if TYPE_CHECKING:
    from parley.sdk.client import Client
    from parley.sdk.options import Options


@dataclass(frozen=True)
class Row:
    """One row of a picker."""

    key: str
    label: str
    detail: str = ""
    mark: str = ""


class View(Protocol):
    """The application, as far as a command may use it."""

    styles: Styles

    @property
    def client(self) -> Client[Any]:
        """The client of the session. Raises ValueError before the engine is ready."""

    @property
    def options(self) -> Options[Any]: ...

    @property
    def session_id(self) -> str: ...

    @property
    def cwd(self) -> str: ...

    @property
    def folders(self) -> Sequence[str]:
        """The working directories, `cwd` first. Programs that we start come from none of them."""

    @property
    def prompts(self) -> Sequence[tuple[str, str]]:
        """The uuids and texts of the prompts of this conversation, oldest first."""

    @property
    def width(self) -> int:
        """The columns of the window."""

    def print(self, lines: Sequence[str]) -> None:
        """Print into the scrollback lines that are safe (`rendering.text`) and fit into the width."""

    async def edit(self, path: str) -> None:
        """Open a file in the person's editor, and wait until it is closed."""

    async def choose(
        self,
        title: str,
        rows: Sequence[Row],
        *,
        search: bool = True,
        preview: Callable[[Row], str] | None = None,
    ) -> Row | None:
        """Let the person pick a row; None after Escape."""

    async def ask(self, prompt: str, initial: str = "") -> str | None:
        """Ask for one line of text; None after Escape."""

    async def confirm(self, question: str) -> bool:
        """Ask a question that is answered with yes or no."""

    async def switch_session(self, session_id: str, *, cwd: str | None = None, at: str | None = None) -> None:
        """Continue another session in this terminal; with `at`, a copy of it up to this message."""

    def set_theme(self, name: str) -> None:
        """Change the colours, now and for the next start."""


@dataclass(frozen=True)
class TerminalCommand:
    """A slash command that the terminal answers itself."""

    name: str
    summary: str
    run: Callable[[View, str], Awaitable[None]]
    argument: str = ""
    """How its argument is called in the help, such as `[NAME]`."""


@dataclass(frozen=True)
class SessionStatus:
    """The figures of a session that a status line shows. None is unknown."""

    mode: str = "default"
    model: str = ""
    context_percent: float | None = None
    cost_usd: float | None = None
    cwd: str = ""
    session_id: str = ""
    version: str = ""
