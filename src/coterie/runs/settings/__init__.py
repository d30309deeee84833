"""The settings of a run as a whole: all sections together, as TOML, and which may change while a run goes on."""
