"""Hooks: their events, inputs and outputs, and how the outputs of several hooks are merged."""
