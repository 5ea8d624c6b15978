"""What goes into a prompt besides typed text: earlier prompts, pastes, images, output of the person's own commands."""
