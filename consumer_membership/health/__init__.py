"""The health of a consumer: one verdict of a closed set, its cause, and whether a restart would help.

`progress` compares samples of each partition's position; `verdict` derives the verdict from that progress and the
membership's view; `report` formats it for probes. All three are pure: they have no clock, thread or handle.
`runtime/application/health_monitor` takes the samples, and `runtime/probes` serves the reports.
"""
