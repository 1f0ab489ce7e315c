"""Metrics of consumers: the counts of the membership and the application, and exporters for them."""
