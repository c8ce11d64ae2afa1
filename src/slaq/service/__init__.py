"""The service: one scheduler that a team leaves running, with durable jobs and users."""
