"""Attacks that draw pictures, run again as the papers did."""
