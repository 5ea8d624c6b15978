"""Slash commands and skills."""
