"""Tests of KIP-848 groups in the simulation, whose pure coordinator keeps the broker's rules for heartbeats."""
