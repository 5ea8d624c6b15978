"""Types of the SDK: messages, content blocks, hook inputs and outputs, and other dictionaries."""
