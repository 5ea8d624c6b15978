"""Fake models that need no key and no network: `scripted:FILE` and `offline`."""
