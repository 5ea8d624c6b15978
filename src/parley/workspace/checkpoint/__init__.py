"""Checkpoints of files before each change, so that changes can be rewound."""
