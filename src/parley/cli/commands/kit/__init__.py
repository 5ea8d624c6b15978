"""Subcommands of parley-kit: `conform`, `conform-client`, `eval`, `fake`, `inspect`, `replay`, `schema` and `tap`."""
