"""Classic groups in the simulation: a pure coordinator that keeps the broker's rules for JoinGroup and SyncGroup."""
