"""The Python SDK: the client side of the protocol. `import parley` exports its public names."""
