"""Handwritten digits, learnt by nodes that keep their own."""
