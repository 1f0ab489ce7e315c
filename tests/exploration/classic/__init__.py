"""The classic core among explored worlds: its process, the coordinator of `tests.simulation.classic`, the rules."""
