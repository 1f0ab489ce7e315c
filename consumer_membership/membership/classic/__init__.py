"""The classic protocol's pure core: its state machine, its requests and answers, and the leader's assignment."""
