"""The crash guardian: a small process that leaves the group on behalf of members whose process died.

A member that dies without a goodbye (`kill -9`, out of memory) keeps its partitions until its session ends, 45 s by
default. With `crash.guardian.enable` the application's process starts one guardian, which holds a *leave request* for
each of its members: what to send, ready as bytes, and where to. When the process is gone and a leave request is still
there, the guardian sends it:

| member | consumer protocol | classic protocol |
|---|---|---|
| dynamic | epoch -1: the others get its partitions after one heartbeat | LeaveGroup: the same |
| static | epoch -2: its replacement joins without having to take its place by force | nothing |

A static member of a classic group has no leave request, because its protocol knows no leave for a while: a LeaveGroup
ends its place for good, and its partitions would wander to the others and back. Without one the place stands until the
session ends, as after -2, and the replacement takes it at once: the newest holder of an instance id wins (KIP-345).
A dynamic one has one as soon as the coordinator gave it an id, before it joins with it: until its session ends the
others' rebalances wait for a member that is pending (KIP-394). An id that was still on its way to a member when it died
is nobody's to give back.

    application's process                                   guardian's process (a few modules, 12.6 MB)
    guarded_member   a member's view -> its leave request
    owner       one guardian per process, forks  -- pipe --> leave_requests   what was said last of each member
                                                             watch     is the application's process gone?
                                                             leaving   the leaves, wherever the coordinator is
                                                             asking    one question to one broker
                                                             encryption, authentication   for members with TLS or SASL
                                                             process   all of it, from the start to the end
                                                             script    how it comes to run without the package

Both sides share `leave_requests`. Rules that everything here follows:

1. It never acts while the application's process lives, whatever happens to the pipe: an application may close all its
   descriptors, or be stopped. A member id belongs to one process alone, so that a leave which comes late, twice or for
   a member that left already meets UNKNOWN_MEMBER_ID and harms nobody.
2. The application never waits for it, and never fails because of it.
3. It outlives signals that are meant for the application, and nothing else: it ends with the application.
4. Passwords and keys are sent through the pipe into its memory, and nowhere else: not into arguments, environment (it
   has the application's), texts or logs. Only a certificate or key that was given as text becomes a file while `ssl`
   reads it, which this user alone can read.

What it cannot do: a host, a container or a PID namespace that ends takes the guardian along. That is so too where the
application is PID 1 of its container, or the child of an init that ends with it at once (one that waits half a second
is enough: 10 ms pass from the death to the leave); `memory.oom.group` kills both. systemd stops what is left of a unit
with SIGTERM first, which the guardian outlives. A process that replaces its program (`exec`) lives on, so its guardian
waits for its end. The guardian is a child of the application, as multiprocessing's resource tracker is: an application
that waits for all its children (`os.wait()` until there are none) waits for ever.

Why finished frames come through the pipe: what the member knew of its request would have to come there anyway. SASL's
alone are made here, because each depends on what the broker has said. Answers are read by `wire.codec`.

The leave is as safe as the member was: over TLS with the same verification and the same certificate, after SASL with
the user and the password of the member's last event (`Consumer.set_sasl_credentials`). What a leave request says of TLS
and SASL is imported when it comes, in 15 to 20 ms, after which the guardian has 20 MB with TLS, 18 with SASL, 21 with
both; TLS adds 10 ms to the leave. Certificates are read at the leave, since a renewal may have replaced them; their
paths mean the application's folder. A broker that refuses the credentials is not asked again, for some lock an account
then. There is no guardian for OAUTHBEARER: a token from before the death may have ended, and nobody is left to fetch
another one.
"""
