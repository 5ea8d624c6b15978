"""An engine in this process.

It is built from the same command line and environment as a subprocess, sends the same messages, and ends the same way:
with an exit code, and its warnings as stderr.

See also: `sdk/launch/in_process.py` for the SDK, `gateway/engines.py` for the gateway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parley.engine.clock import Clock
    from parley.engine.session.config import SessionConfig
    from parley.engine.session.session import Session
    from parley.protocol.options import CliOptions
    from parley.stores.base import Store
    from parley.transports.base import Transport

STDERR_CHARS = 64 * 1024


class LocalEngine:
    """One engine: its arguments, its session and its exit code."""

    def __init__(
        self,
        argv: Sequence[str],
        cwd: str,
        environment: Mapping[str, str],
        store: Store | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`store`: where its transcripts are kept, instead of where the options say. `clock`: its ids and times."""
        self.argv = list(argv)
        self.session: Session | None = None
        self.exit_code: int | None = None
        self._cwd = cwd
        self._environment = dict(environment)
        self._store = store
        self._clock = clock
        self._is_stopped = False
        self._warnings: list[str] = []

    def warn(self, text: str) -> None:
        self._warnings.append(text)

    def refuse(self, text: str) -> None:
        """Report why the session does not start. It ends at once."""
        self.warn(text)

    def adapt(self, config: SessionConfig) -> SessionConfig:
        """Change what the session is made of. Subclasses connect it to the program that it runs in."""
        return config

    def stderr(self) -> str:
        """The end of what a subprocess would have written to stderr."""
        return "\n".join(self._warnings)[-STDERR_CHARS:]

    async def run(self, transport: Transport) -> None:
        """Serve the session until it ends."""
        from parley.compose.registry import make_dialect
        from parley.engine.clock import Clock
        from parley.engine.session.pump import Pump, serve
        from parley.engine.session.session import Session
        from parley.engine.turn.outcome import no_session_result
        from parley.errors import SessionError, StartRefused, UsageError
        from parley.protocol.base import UNSET, Role
        from parley.protocol.connection import Connection
        from parley.protocol.options import parse

        self.exit_code, clock = 1, self._clock or Clock()
        try:
            parsed = parse(self.argv)
            for warning in parsed.warnings:
                self.warn(warning)
            options = parsed.options
            connection = Connection(Role.ENGINE, make_dialect(options, clock))
            pump = Pump(connection, transport, clock.new_uuid)
            config = await self._make_config(options, clock, parsed.warnings)
            session = self.session = Session(self.adapt(config.with_shared_loop()), pump)
            if self._is_stopped:
                session.stop()
        except UsageError as exc:
            self.refuse(f"Error: {exc}")
        except (SessionError, OSError) as exc:
            self.refuse(str(exc))
            session_id = options.resume or options.session_id or clock.new_uuid()
            reason = (exc.reason if isinstance(exc, StartRefused) else None) or UNSET
            refusal = no_session_result(str(exc), session_id, clock, startup_failure_reason=reason)
            transport.write(connection.send(refusal))
        else:
            try:
                await serve(transport, pump, session)
            finally:
                session.journal.close()  # release the session for others, even if we are cancelled
            last = session.runner.last_result
            self.exit_code = 1 if last is not None and last.is_error is True else 0

    async def _make_config(self, options: CliOptions, clock: Clock, warned: Sequence[str]) -> SessionConfig:
        """Raises UsageError or SessionError."""
        from parley.compose.composer import Composer

        def make() -> SessionConfig:
            composer = Composer(options, self._environment, self._cwd, clock, store=self._store, warn=self.warn)
            return composer.make_config(warned)

        # A remote workspace that does not answer must not stop the other sessions of this loop.
        return make() if options.workspace is None else await asyncio.to_thread(make)

    def stop(self) -> None:
        """Stop the session, even during a turn, or before it has started."""
        self._is_stopped = True
        if self.session is not None:
            self.session.stop()

    def abandon(self) -> None:
        """Stop the session at once, because its client is gone."""
        if self.session is not None:
            self.session.abandon()
