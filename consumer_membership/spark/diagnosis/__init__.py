"""What a check of a Spark session and a Kafka cluster finds.

`session`, `workers` and `cluster` each ask, hold what they were told as plain values, and judge those without asking
anybody, in the words of `catalogue`; `spark/doctor.py` puts them together.
"""
