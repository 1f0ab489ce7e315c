"""Consume from Amazon MSK with IAM access control, as `oauth_cb` does it.

    pip install aws-msk-iam-sasl-signer-python
    python examples/msk_iam.py -b b-1.orders.kafka.eu-west-1.amazonaws.com:9098 -t orders --region eu-west-1

The signer finds AWS credentials in the usual places: environment variables, profiles, and the roles of EC2, ECS and
EKS. A token is a signed URL that is valid for 15 minutes; creating one needs no request. This package calls `oauth_cb`
before the token expires, and uses each token for the connections of the group membership and for those that fetch.
"""

import argparse
import os
from collections.abc import Callable

from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

from consumer_membership import Consumer, KafkaException


def token_callback(region: str) -> Callable[[str | None], tuple[str, float]]:
    """Return an `oauth_cb` that signs tokens for the MSK clusters of this region."""

    def oauth_cb(_: str | None) -> tuple[str, float]:
        token, expires_at_ms = MSKAuthTokenProvider.generate_auth_token(region)
        return token, expires_at_ms / 1000

    return oauth_cb


def main() -> None:
    """Print the first records of a topic."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-b", "--bootstrap-servers", default=os.environ.get("KAFKA_BOOTSTRAP_SERVERS"))
    parser.add_argument("-g", "--group", default="msk-iam")
    parser.add_argument("-t", "--topic", default="orders")
    parser.add_argument("-n", "--records", type=int, default=10)
    parser.add_argument("--region", default=os.environ.get("AWS_REGION", "us-east-1"))
    options = parser.parse_args()

    config = {
        "bootstrap.servers": options.bootstrap_servers,
        "group.id": options.group,
        "auto.offset.reset": "earliest",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": token_callback(options.region),
    }
    with Consumer(config) as consumer:
        consumer.subscribe([options.topic])
        for _ in range(options.records):
            message = consumer.poll(10)
            if message is None:
                print(f"no record for 10 s; the member waits for: {consumer.membership().waits_for_text or 'nothing'}")
                break
            if message.error() is not None:
                raise KafkaException(message.error())
            print(f"{message.topic()}[{message.partition()}]@{message.offset()} {message.value()!r}")


if __name__ == "__main__":
    main()
