"""Tools for todo lists, plans and questions."""
