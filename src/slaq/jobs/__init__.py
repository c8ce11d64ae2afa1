"""What a training program sees: its data in partitions, and the context it trains in."""
