"""One module for each figure: `run(bench)` measures it. `tests/benchmarks/table.py` lists them."""
