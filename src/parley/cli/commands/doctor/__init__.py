"""`parley doctor`: checks of the installation, the configuration and the session store."""
