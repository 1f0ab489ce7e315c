"""The application's side of the line: code that runs on the threads that call a consumer, and librdkafka's handle."""
