"""The gateway over HTTP and WebSocket."""
