"""The package's main job, shown and checked: one group on a real broker, its members in processes of their own.

    run ── members ──(pipes)── application     one process per member, each with a Consumer
     ├──── records                             numbered and keyed: produced, counted by who saw them, checked
     ├──── brokers, mock                       where the broker comes from; what it holds at the end
     └──── screen, table_screen                lines, or a live table

The parent only looks at what its members report and at what the broker answers to plain confluent-kafka, so that
the thing that is shown does not give evidence for itself. It holds no product code: nothing may import it but the
command line.
"""
