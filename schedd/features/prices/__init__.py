"""Prices of node time: what jobs cost, and limits of their cost."""
