"""The crash guardian: a small process that leaves the group on behalf of members whose process died.

A member that dies without leaving (`kill -9`, out of memory) keeps its partitions until its session ends, 45 s by
default. With `crash.guardian.enable` the application's process starts one guardian, which holds a *leave request* for
each of its members: the bytes to send, and the addresses to send them to. When the process has ended and a leave
request is left, the guardian sends it:

| member | consumer protocol | classic protocol |
|---|---|---|
| dynamic | epoch -1: the others get its partitions after one heartbeat | LeaveGroup: the others get its partitions |
| static | epoch -2: its replacement joins without a takeover | nothing |

A static member of a classic group has no leave request, because its protocol has no temporary leave: a LeaveGroup ends
the membership, and its partitions would move to the others and back. Without a LeaveGroup, the coordinator keeps the
member until its session ends, as after -2, and the replacement joins with its partitions at once: the newest holder of
an instance id wins (KIP-345). A dynamic member has a leave request as soon as the coordinator assigned it an id, before
it joins with that id: the rebalances of the other members wait for a pending member until its session ends (KIP-394).
If a member dies while its id is still in flight, no leave can name that id.

    application's process                                   guardian's process (a few modules, 12.6 MB)
    guarded_member   a member's view -> its leave request
    owner       one guardian per process, forks  -- pipe --> leave_requests   the latest request of each member
                                                             watch     has the application's process ended?
                                                             leaving   the leaves, wherever the coordinator is
                                                             asking    one request to one broker
                                                             encryption, authentication   for members with TLS or SASL
                                                             process   all of it, from the start to the end
                                                             script    how it runs without the package

Both sides share `leave_requests`. Rules that everything here follows:

1. It never acts while the application's process is alive, whatever happens to the pipe: an application may close all
   its descriptors, or be stopped. A member id belongs to one process alone, so a leave that comes late, twice or for
   a member that left already gets UNKNOWN_MEMBER_ID and does no harm.
2. The application never waits for it, and never fails because of it.
3. It survives signals that are meant for the application, and nothing else: it ends with the application.
4. Passwords and keys are sent through the pipe into its memory, and nowhere else: not into arguments, environment (it
   has the application's), messages or logs. Only a certificate or key that was given as text becomes a file while `ssl`
   reads it: in memory on Linux, elsewhere a temporary file that this user alone can read.

What it cannot do: a host, a container or a PID namespace that ends also ends the guardian. That also holds if the
application is PID 1 of its container, or the child of an init that ends with it at once (one that waits half a second
is enough: 10 ms pass from the death to the leave); `memory.oom.group` kills both. systemd stops the rest of a unit with
SIGTERM first, which the guardian survives. A process that replaces its program (`exec`) lives on, so its guardian waits
for its end. The guardian is a child of the application, like multiprocessing's resource tracker: an application that
waits for all its children (`os.wait()` until there are none) waits forever.

The pipe carries finished frames, because the data to build them would have to be sent anyway. Only the frames of SASL
are built here, because each depends on the broker's previous response. `wire.codec` reads the responses.

The leave is as secure as the member's connections were: over TLS with the same verification and the same certificate,
after SASL with the user and the password of the member's last event (`Consumer.set_sasl_credentials`). The modules for
TLS and SASL are imported when a leave request needs them, in 15 to 20 ms, after which the guardian has 20 MB with TLS,
18 with SASL, 21 with both; TLS adds 10 ms to the leave. Certificates are read at the leave, since a renewal may have
replaced them; their paths are relative to the application's directory. A PKCS#12 keystore is read when the member
starts. A broker that refuses the credentials is not contacted again, because some brokers lock an account then. There
is no guardian for OAUTHBEARER: a token from before the death may have expired, and no process is left to fetch another
one.
"""
