"""The conversation as the model sees it: history, system prompt, mentions, compaction."""
