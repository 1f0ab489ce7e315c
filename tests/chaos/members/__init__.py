"""The programs of the members of a round: they receive, commit, and write their history."""
