"""Empty. Its place in `__pycache__` holds the file that `bundle.py` writes, so that pip and uv remove it with us."""
