"""The paper's evaluation, rerun: one module per experiment, and the report made from their results."""
