"""Stores that keep sessions in a database."""
