"""Backends that call a model over the network."""
