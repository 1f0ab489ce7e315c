"""The meaning of Kafka's messages: facts for the membership from responses, requests from its effects, and verdicts."""
