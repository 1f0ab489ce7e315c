"""The KIP-848 core among explored worlds: its process, its coordinator, and what must hold of them."""
