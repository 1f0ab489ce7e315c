"""The classic core in an exploration: the delivery of requests, spontaneous events, and canonical states."""
