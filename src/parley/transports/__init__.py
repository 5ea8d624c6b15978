"""How bytes get in and out."""
