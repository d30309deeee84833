"""Settings for all tests: properties are judged by what they show, never by how long they take."""

from hypothesis import HealthCheck, settings

settings.register_profile("coterie", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("coterie")
