"""The coordinator of classic groups."""
