"""Settings for all tests: properties are judged by what they show, never by how long they take.

The same examples are tried every time, so that a test says the same of the same code; `make slow` tries others.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("same", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("search", settings.get_profile("same"), derandomize=False, print_blob=True)
settings.load_profile(os.environ.get("COTERIE_EXAMPLES", "same"))
