"""The flight recorder: its ring, its files, and the core run on them again."""
