"""Load what users define in files: agents, commands, skills, memory files, plugins, output styles."""
