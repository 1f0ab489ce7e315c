"""The shell: threads, sockets and the librdkafka handle, around the pure core.

Front ends import `session` and `broker_client` only.
"""
