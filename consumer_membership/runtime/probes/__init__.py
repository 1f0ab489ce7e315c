"""Answers probes: one thread of the process serves HTTP and touches files.

The keys are `health.http.address` and `health.file`. It is a separate thread, so that probes can tell a handler that
blocks the application's thread from a dead process: the thread answers regardless of the application and the
membership, as long as the interpreter schedules it. Nothing of this is imported if neither key is set.

    requests     requests from bytes, and responses as bytes; no sockets
    pages        the response for each path
    health_file  the file, which one live process holds
    connections  the connections of probers: few, for a short time, each with little memory
    thread       the process's thread: which consumers are reported where, from the first consumer to the last

Rules:

1. A consumer is never kept alive, and never waited for: health is known data, read in microseconds.
2. No prober delays another one: a connection has a few seconds from its beginning to its end, an old connection is
   closed if there is no place for a new one, and the size of a request is bounded.
3. An address or a file that another process has is rejected when the consumer is created. Later failures are logged.
4. A child of `fork()` has no probe thread: it closes the inherited files and sockets, and serves its own consumers'
   settings.

HTTP is served by code of this package, and not by the standard library's `http.server` or by h11, because most of that
code is the limits, which neither of them has.

- `http.server` needs a thread for each connection in the application's process, up to 64 of them in a flood, where one
  thread serves all. Its timeout is for one `recv`, so that a client that sends a byte now and then stays forever; it
  bounds lines (64 KiB each, 100 of them) and not a request. The deadline, the eviction of the busiest peer, the wait
  for the peer's end and the size of a head would remain, with locks between those threads. It reads requests that are
  rejected here (no version, two spaces, bytes beyond ASCII), so that the check of the first line would also remain. Its
  import takes 15 ms and 1.7 MiB.
- h11 does no I/O, so that `connections` would remain as it is; only the first line and the encoding of responses in
  `requests` would go, some 40 lines. It would be a dependency of every consumer, because `health.http.address` needs no
  extra, for 10 ms of import.
"""
