"""Level 5: the package on a real Apache Kafka broker."""
