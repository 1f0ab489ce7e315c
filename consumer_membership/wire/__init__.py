"""The Kafka protocol without I/O: bytes become frames, frames become what the core understands, and back.

`connection` cuts a byte stream into frames and carries one connection to the point where requests may be sent;
`versions` says which versions of which API this package speaks; `requests` turns wishes into calls, `answers`,
`classic_answers`, `metadata` and `descriptions` turn answers into facts, and `codec` alone knows how both are written;
`verdicts` is the one place that says what an error code means for a member.

This room opens no socket, reads no clock and logs nothing; whoever owns the socket passes the bytes in and out.
"""
