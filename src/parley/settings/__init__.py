"""Settings, environment variables, credentials and trust."""
