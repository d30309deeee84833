"""Sections of the settings: their common base, how a setting names an entry of a table, and what contradicts what."""
