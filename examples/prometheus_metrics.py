"""Serve the metrics and probes of a consumer over HTTP, for Prometheus.

    python examples/prometheus_metrics.py -b localhost:9092 -t orders --address 127.0.0.1:8080
    curl http://127.0.0.1:8080/metrics

The same address answers /livez, /readyz and /health. The folder examples/monitoring has Prometheus and Grafana for it.
The program ends with Ctrl-C or SIGTERM.
"""

import argparse
import os
import signal
import threading

from consumer_membership import Consumer, KafkaException

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("-b", "--bootstrap-servers", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
parser.add_argument("-g", "--group", default="prometheus-metrics")
parser.add_argument("-t", "--topic", default="orders")
parser.add_argument("--address", default="127.0.0.1:8080", help="HOST:PORT; 0.0.0.0:8080 for a Prometheus elsewhere")
options = parser.parse_args()

stopping = threading.Event()
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: stopping.set())

config = {
    "bootstrap.servers": options.bootstrap_servers,
    "group.id": options.group,
    "auto.offset.reset": "earliest",
    "health.http.address": options.address,
    "statistics.interval.ms": 5000,  # librdkafka counts fetched records and bytes only with this key
}

with Consumer(config) as consumer:
    consumer.subscribe([options.topic])
    print(f"http://{options.address}/metrics", flush=True)
    while not stopping.is_set():
        message = consumer.poll(1.0)
        if message is not None and message.error() is not None:
            if message.error().fatal():
                raise KafkaException(message.error())
            print(f"error: {message.error()}")
