"""The classic core in an exploration: its process, the coordinator of `tests.simulation.classic`, and their rules."""
