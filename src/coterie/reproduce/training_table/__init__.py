"""Accuracy tables: whole training runs beside what a paper prints."""
