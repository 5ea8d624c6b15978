"""The permission mode of a session: the current one, and the one that it returns to from plan mode."""

from __future__ import annotations

from collections.abc import Callable

from parley.engine.session.config import PermissionConfig
from parley.engine.session.journal import Journal
from parley.engine.session.outbox import Outbox
from parley.errors import SessionError
from parley.protocol.messages.system import Status
from parley.settings.base import SettingsAccess


class SessionMode:
    def __init__(
        self,
        config: PermissionConfig,
        settings: SettingsAccess | None,
        journal: Journal,
        outbox: Outbox,
        warn: Callable[[str], None],
    ) -> None:
        self._config = config
        self._settings = settings
        self._journal = journal
        self._outbox = outbox
        self._warn = warn
        self.current = config.mode
        self._previous = "default"
        # A resumed session continues in its mode, unless the command line sets another one.
        grants = journal.grants
        if grants.mode is not None and not config.mode_is_explicit:
            closed = () if config.may_bypass else ("bypassPermissions",)
            self.current = config.mode if grants.mode in closed else grants.mode
            self._previous = "default" if grants.previous_mode in closed else grants.previous_mode

    def may_bypass(self) -> bool:
        """Whether bypassPermissions is available: allowed at launch, and not disabled by settings since."""
        settings = self._settings
        return self._config.may_bypass and (settings is None or settings.merged.bypass_disabled is None)

    def change(self, mode: str | None) -> None:
        """Change the mode and report it. None leaves plan mode for the mode before it."""
        if mode is None:
            mode = self._previous if self.current == "plan" else self.current
            if mode == "bypassPermissions" and not self.may_bypass():
                mode = "default"
        if mode != self.current:
            self._previous, self.current = self.current, mode
            if not self._journal.is_empty:
                self.append()
            self._outbox.send(Status(status=None, permissionMode=mode))

    def append(self) -> None:
        """Record the mode for a resume. Called from the first turn on: a session without a turn leaves no log."""
        grants = self._journal.grants
        if self.current != (grants.mode or self._config.mode):
            try:
                self._journal.append_event("mode", grants.mode_record(self.current, self._previous))
            except SessionError as exc:
                self._warn(str(exc))
