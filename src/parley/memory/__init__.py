"""Long-term memory: a knowledge tree, summaries, search, and the worker that maintains them."""
