"""The shell around the pure core: threads, sockets and the librdkafka handle.

`application` is the side of the threads that poll, `network` that of the membership thread, `line` the interface
between them; `guardian` is a separate process.
"""
