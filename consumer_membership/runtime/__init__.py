"""The shell: threads, sockets and the librdkafka handle, around the pure core.

Front ends import `application.session` and `network.group_client` only.
"""
