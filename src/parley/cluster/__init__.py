"""Sessions on many machines: `parley host`, and `parley serve --nats`."""
