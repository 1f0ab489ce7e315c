"""Simulated group coordinators: pure, deterministic, and checked against real brokers by this project's tests."""
