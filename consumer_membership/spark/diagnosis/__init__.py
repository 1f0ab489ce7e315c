"""The checks of a Spark session and a Kafka cluster before a job.

`session`, `workers` and `cluster` each collect facts as plain values, and derive findings from the facts without any
further request. `catalogue` has the texts of all findings. `spark/doctor.py` runs the checks.
"""
