"""Where commands run and files are: the sandbox of a session, and remote workspaces."""
