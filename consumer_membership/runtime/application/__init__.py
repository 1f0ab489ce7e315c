"""The application's side of the line: what runs on the threads that call a consumer, librdkafka's handle among it."""
