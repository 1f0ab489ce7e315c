"""The package's main job, shown and checked: one group on a real broker, its members in processes of their own.

    run ── scenario ── crew ──(pipes)── application     one process per member, each with a Consumer
     │         ├────── stream                           numbered, keyed records
     │         └────── ledger                           which member saw which number
     ├─ cluster, mock                                   where the broker comes from; what it holds at the end
     └─ screen                                          a live table, or lines

The parent only looks at what its members report and at what the broker answers to plain confluent-kafka, so that
the thing that is shown does not give evidence for itself. It holds no product code: nothing may import it but the
command line.
"""
