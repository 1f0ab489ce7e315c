"""Programs with environments of their own: the oldest confluent-kafka, and frameworks that make consumers."""
