"""One function per control request, grouped by theme."""
