"""Consume over TLS with a user and a password (SASL_SSL).

    export CONSUMER_MEMBERSHIP_SASL_PASSWORD=...
    python examples/sasl_ssl.py -b kafka.example:9093 -t orders --username orders --ca ca.pem

The password comes from the environment, so that it is neither in the program nor in the list of processes. A consumer
with wrong credentials retries without end, because a new password may become valid later. This program therefore checks
the credentials first and ends with the broker's message if they are rejected.
"""

import argparse
import os
import sys

from consumer_membership import AuthenticationError, Consumer, KafkaException
from consumer_membership.admin import GroupAdmin

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("-b", "--bootstrap-servers", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"))
parser.add_argument("-g", "--group", default="sasl-ssl")
parser.add_argument("-t", "--topic", default="orders")
parser.add_argument("-n", "--records", type=int, default=10)
parser.add_argument("--username", required=True)
parser.add_argument("--mechanism", default="SCRAM-SHA-512", help="PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")
parser.add_argument("--ca", help="certificate of the authority; by default the system's trust store")
options = parser.parse_args()

connection = {
    "bootstrap.servers": options.bootstrap_servers,
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": options.mechanism,
    "sasl.username": options.username,
    # sasl.password: the package reads CONSUMER_MEMBERSHIP_SASL_PASSWORD.
}
if options.ca is not None:
    connection["ssl.ca.location"] = options.ca

try:
    GroupAdmin(connection).list_groups()  # needs no ACL
except AuthenticationError as error:
    sys.exit(f"cannot log in: {error}")

with Consumer({**connection, "group.id": options.group, "auto.offset.reset": "earliest"}) as consumer:
    consumer.subscribe([options.topic])
    printed = 0
    while printed < options.records:
        message = consumer.poll(10)
        if message is None:
            print(f"no record for 10 s; the member waits for: {consumer.membership().waits_for_text or 'nothing'}")
            break
        if message.error() is not None:
            if message.error().fatal():
                raise KafkaException(message.error())  # for example a missing ACL
            print(f"error: {message.error()}")
            continue
        print(f"{message.topic()}[{message.partition()}]@{message.offset()} {message.value()!r}")
        printed += 1
