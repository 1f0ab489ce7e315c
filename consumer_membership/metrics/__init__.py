"""How often and how long: what a consumer did, counted where it happens, under the names of Java, Prometheus and OTel.

`membership_ledger` and `application_ledger` count on their threads, `snapshot` is what they come to at one moment, and
`catalogue` is the table of all names, from which everything else is made: exporters, documents, what brokers are told.
All of these are pure: no clock, thread or handle. `sources` knows the consumers of this process, `exposition` has them
as text. `prometheus` and `opentelemetry` are exporters, of the extra `metrics`, and imported by nobody here.
"""
