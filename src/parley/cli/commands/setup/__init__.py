"""Subcommands about the installation: `auth`, `config`, `doctor`, `update`."""
