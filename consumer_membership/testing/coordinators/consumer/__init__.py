"""The coordinator of consumer-protocol groups (KIP-848)."""
