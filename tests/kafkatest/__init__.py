"""Kafka's system tests of consumer groups, written again for the verifiable consumers of several clients."""
