"""Help, the manual page and shell completion, made from the tables of options and subcommands."""
