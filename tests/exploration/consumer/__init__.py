"""The KIP-848 core in an exploration: its process, its coordinator, and their invariants."""
