"""The programs of a round's members: they receive records, commit offsets, and write their history."""
