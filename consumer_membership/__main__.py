"""`python -m consumer_membership` is the command line."""

import sys

from consumer_membership.cli import main

sys.exit(main())
