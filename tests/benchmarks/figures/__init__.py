"""One module per figure; each has `NAME`, `run(bench) -> Figure`, and perhaps a plot."""
