"""Imprinting: a model crafted by the server, so that the sum of all updates contains single examples."""
