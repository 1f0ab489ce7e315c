"""Front ends: what applications import. They translate between their users' types and the session's."""
