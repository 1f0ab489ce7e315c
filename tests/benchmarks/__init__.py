"""The costs and gains of the package, measured side by side with raw confluent-kafka on one real broker.

`python -m tests.benchmarks [names...] [--quick]` runs all figures or some of `table.py` and writes a table, JSON and
plots. The tests in this package check only the calculations, and no test depends on a measured time, because a slow
machine must not fail a test run. These tests belong to the full run.

The rules for fair figures: both sides run in the same minutes against the same broker, in turns or at the same time.
Each measurement is a process of its own, so that it does not profit from imports, connections or caches of another
one. Received records are compared with written records. A failed measurement is counted as failed and never left out.
`--subject confluent_kafka` measures raw against raw; the differences are then noise of the machine and of this harness.
"""
