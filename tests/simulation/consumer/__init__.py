"""KIP-848 groups in the simulation: a pure coordinator that keeps the broker's rules for heartbeats."""
