"""The flight recorder: its ring, its files, and replays of the core."""
