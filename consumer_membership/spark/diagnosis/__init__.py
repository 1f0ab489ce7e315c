"""What a check of a Spark session and a Kafka cluster finds: facts are gathered in one place, judged in another.

`session`, `workers` and `cluster` ask and hold what they were told, as plain values; `*_findings` say what it means and
ask nobody, so that every judgement can be tested without Spark and without Kafka. `spark/doctor.py` puts both together.
"""
