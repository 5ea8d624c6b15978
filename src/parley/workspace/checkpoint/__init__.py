"""Snapshots of files, so that changes can be rewound."""
