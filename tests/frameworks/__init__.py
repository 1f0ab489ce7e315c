"""Programs in separate environments: with the oldest confluent-kafka, or with frameworks that create consumers."""
