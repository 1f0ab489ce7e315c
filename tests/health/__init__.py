"""Why nothing is consumed: partitions and verdicts, in virtual time."""
