"""The processes that are measured: each a module of its own, run by `python -m`, importing no more than it needs.

A worker gets its job as JSON in its first argument, orders as lines on stdin, and says what happens as JSON lines on
stdout, stamped by CLOCK_MONOTONIC, which all processes of a machine share. It ends when its stdin is closed.
"""
