"""Settings shared by all tests: the hypothesis profiles, chosen by HYPOTHESIS_PROFILE."""

import os

from hypothesis import HealthCheck, settings

# Examples are derived from the test itself and never timed, so that a run on a busy machine gives the
# same verdict as one on an idle machine.
settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("default", settings.get_profile("ci"), max_examples=50)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
