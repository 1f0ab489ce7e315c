"""Print the records of a topic: `python -m bytewax.run app_bytewax`, with `SERVERS` and `TOPIC` set."""

from __future__ import annotations

import os

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSource
from bytewax.connectors.stdio import StdOutSink
from bytewax.dataflow import Dataflow

flow = Dataflow("numbers")
numbers = op.input("numbers", flow, KafkaSource([os.environ["SERVERS"]], [os.environ["TOPIC"]], tail=False))
words = op.map("words", numbers, lambda message: f"record {message.value.decode()}")
op.output("told", words, StdOutSink())
