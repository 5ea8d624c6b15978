"""Sessions that show what the console can do, without a model."""
