"""How many cases tests draw: few in an ordinary run, all of them in a soak (`.ci/run --soak`)."""

import os

from hypothesis import HealthCheck, settings

SOAK = os.environ.get("ACTORGRAPH_SOAK") == "1"


def drawn(quick, soak):
    """Return the settings of a test that hypothesis draws so many cases for."""
    return settings(
        max_examples=soak if SOAK else quick,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
