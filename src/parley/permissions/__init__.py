"""Permission decisions: rules, modes, and what a call would touch."""
