"""The programs of the measured processes: each is a module, is run by `python -m`, and imports only what it needs.

A worker receives its job as JSON in its first argument, and orders as lines on stdin. It reports events as JSON lines
on stdout, with the time of CLOCK_MONOTONIC, which all processes of a machine share. It ends when its stdin is closed.
"""
