"""Kafka's system tests of consumer groups, reimplemented for the verifiable consumers of several clients."""
