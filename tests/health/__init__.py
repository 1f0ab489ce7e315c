"""Health: progress of partitions, verdicts, reports and lifecycle events, in virtual time."""
