"""Front ends that applications import; they translate between their users' types and the types of the session."""
