"""How properties are tried: on the same examples each time, so that the same code has the same verdict anywhere, at any pace.

`make explore` tries them on others. What it finds becomes a case that is written out beside the property.
"""

from hypothesis import HealthCheck, settings

_PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}

settings.register_profile("same", derandomize=True, **_PATIENT)
settings.register_profile("other", derandomize=False, print_blob=True, **_PATIENT)
settings.load_profile("same")
