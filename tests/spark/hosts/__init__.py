"""Spark on several hosts: each has its own network, and no host can reach another one's loopback."""
