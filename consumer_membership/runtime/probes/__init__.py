"""Answers to probes: one thread of the process serves HTTP and touches files.

The keys are `health.http.address` and `health.file`. A thread of its own, so that a handler that hogs the application's
thread is told from a process that is dead: it answers whatever the application and the membership do, as long as the
interpreter gives it a turn. Nothing of this is imported where neither key is set.

    requests     what is asked, from bytes, and answers as bytes; no sockets
    pages        what is answered to which path
    health_file  the file, which one living process holds
    connections  those who ask: few, for a short time, each with little memory
    thread       the process's thread: who is told of where, from the first consumer to the last

Rules:

1. A consumer is never kept alive, and never waited for: health is what is known, asked in microseconds.
2. Whoever asks holds nobody up: a connection has a few seconds from its beginning to its end, the longest one makes
   room for the newest, and what it may send is bounded.
3. An address or a file that another process has is refused where the consumer is made. Later troubles are logged.
4. A child of `fork()` has none of it: it closes what it inherited, and serves what its own consumers ask for.

Why HTTP is served by code of this package, and not by the standard library's `http.server` or by h11: most of that code
is the limits, which neither of them has.

- `http.server` needs a thread for each connection in the application's process, up to 64 of them in a flood, where one
  thread serves all. Its timeout is for one `recv`, so that a client that sends a byte now and then stays for ever; it
  bounds lines (64 KiB each, 100 of them) and not a request. The deadline, the eviction of the busiest peer, the wait
  for the peer's end and the size of a head would remain, with locks between those threads. It reads requests that are
  refused here (no version, two spaces, bytes beyond ASCII), so that the check of the first line would remain, too. Its
  import takes 15 ms and 1.7 MiB.
- h11 does no I/O, so that `connections` would remain as it is, and of `requests` the first line and the encoding of
  answers would go, some 40 lines. It would be a dependency of every consumer, because `health.http.address` needs no
  extra, for 10 ms of import.
"""
