"""Programs in their own environments: the oldest confluent-kafka, and frameworks that create their own consumers."""
