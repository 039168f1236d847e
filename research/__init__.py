"""Benchmarks, experiments and simulated federations. They run the product and are no part of the wheel."""
