"""Engines that play a scenario or a recording, to test clients: `parley fake`, `parley replay`, and inside a test."""
