"""Sinks that write data and fence together: PostgreSQL, Parquet files, Kafka."""
