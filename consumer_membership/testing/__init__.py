"""Tests for applications: fixtures for pytest, and a cluster inside the test process."""
