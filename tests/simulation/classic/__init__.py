"""Tests of classic groups in the simulation, with a pure coordinator that keeps the broker's rules."""
