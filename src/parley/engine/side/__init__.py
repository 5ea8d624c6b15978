"""Model calls outside the conversation: for tools, titles and suggestions."""
