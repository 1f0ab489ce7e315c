"""What Kafka's messages mean: facts for the membership from answers, requests from its effects, and their verdicts."""
