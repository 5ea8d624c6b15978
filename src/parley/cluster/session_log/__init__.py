"""The log of a session in a cluster: messages, the writer, and the transcripts of the engine in it."""
