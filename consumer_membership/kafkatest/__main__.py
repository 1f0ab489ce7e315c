"""Run one verifiable consumer until SIGTERM, SIGINT, a fatal error, or the end of `--max-messages`."""

import sys

from consumer_membership import Consumer
from consumer_membership.kafkatest.arguments import parse
from consumer_membership.kafkatest.verifiable_consumer import run_until_signal

if __name__ == "__main__":
    sys.exit(run_until_signal(Consumer, parse(sys.argv[1:])))
