"""The classic protocol's pure core: its state machine, what members tell each other, and who gets what."""
