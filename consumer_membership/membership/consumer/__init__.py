"""The consumer protocol (KIP-848): the broker assigns, heartbeats carry everything."""
