"""Spark on several hosts: each has a network of its own, from which the others' loopback cannot be reached."""
