"""The jobs of `slaq demo`, and how it trains them under one policy after another."""
