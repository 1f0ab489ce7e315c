"""The KIP-848 core in an exploration: its process, its coordinator, and what must hold of them."""
