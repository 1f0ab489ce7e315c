"""The Kafka protocol without I/O: bytes and frames, and the encoding of requests and responses.

`connection` splits a byte stream into frames and takes one connection through its handshake; `versions` has the API
versions that this package supports; `codec` alone encodes and decodes messages, by the tables in `messages`. The
package `translation` gives messages their meaning.

No module here opens a socket, reads a clock or logs; the owner of the socket passes the bytes in and out.
"""
