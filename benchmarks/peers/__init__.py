"""Programs that do the same work with other systems, run by the Python of ``.venv-peers``."""
