"""Running commands so that none outlives the engine."""
