"""Run one consumer group on a real broker, with each member in its own process, and check the result.

    run ── members ──(pipes)── application     one process per member, each with a Consumer
     ├──── records                             numbered records: produced, counted per member, checked
     ├──── brokers, mock                       the broker, and its offsets at the end
     └──── screen, table_screen                lines, or a live table

The parent uses only the reports of its members and the broker's responses to plain confluent-kafka clients, so that
the check does not depend on the code it checks. No other package than the command line may import this one.
"""
