"""The client of nats-py, made to give up a connection that the server does not read from."""

from __future__ import annotations

from nats import errors
from nats.aio.client import Client, Srv
from nats.aio.subscription import Subscription


class AbortingClient(Client):
    requires_tls = False
    """Whether a server without TLS gets nothing. nats-py takes the word of the server for it."""

    def _connect_command(self) -> bytes:
        if self.requires_tls and not self.uses_tls:
            raise errors.Error("the server does not offer TLS; nothing was sent to it")
        return super()._connect_command()

    @property
    def uses_tls(self) -> bool:
        return bool(self._server_info.get("tls_required"))

    async def _attempt_reconnect(self) -> None:
        # nats-py waits until the server has read everything. A frozen one never does.
        self.abort()
        await super()._attempt_reconnect()

    async def _connect_to_server(self, s: Srv) -> None:
        # nats-py does not close the socket of an attempt that failed.
        self.abort()
        await super()._connect_to_server(s)

    def forget(self, subscription: Subscription) -> None:
        """End a subscription without asking the server: it is not made again on another connection."""
        subscription._stop_processing()
        self._remove_sub(subscription._id)

    def abort(self) -> None:
        """Close the socket at once and drop what was not sent."""
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()
