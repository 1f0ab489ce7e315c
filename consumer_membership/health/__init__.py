"""Why is nothing consumed: how a consumer is, out of a closed set, with the cause and whether a restart would help.

`progress` notes how far each partition is whenever somebody looks; `verdict` says what that and the membership's view
come to; `report` puts it into words for probes. All are pure: no clock, thread or handle.
`runtime/application/health_monitor` looks, and asks; `runtime/probes` answers.
"""
