"""Processing: the order of handlers, unfinished offsets, retries and dead letters."""
