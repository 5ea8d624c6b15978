"""Session stores: an append-only log per session, in files, databases or memory."""
