"""Find denied commands and paths wherever a command line hides them."""
