"""The costs and gains of the package, measured side by side with raw confluent-kafka on one real broker.

`python -m tests.benchmarks [names...] [--quick]` runs all figures or some of `table.py` and writes a table, JSON and
plots. Nothing here is a timed test: a slow machine must not turn a test run red. The tests here are of the arithmetic;
they belong to the full run.

How the figures are kept honest: both sides run in the same minutes against the same broker, in turns or at the same
time; every measurement is a process of its own, so that no import, connection or cache of one helps another; what was
received is compared with what was written; a measurement that failed is counted as failed and never left out.
`--subject confluent_kafka` measures raw against raw: what then differs is the noise of the machine and of this harness.
"""
