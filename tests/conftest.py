"""What every test shares: Hypothesis without time limits, and the real parts as fixtures."""

from hypothesis import HealthCheck, settings

# In this order: pytest rewrites the assertions only of modules that nothing has imported yet.
pytest_plugins = [
    "fixtures.kubernetes",
    "fixtures.brokers",
    "fixtures.databases",
    "fixtures.stores",
    "fixtures.images",
    "fixtures.adapters",
    "fixtures.pods",
    "fixtures.operators",
    "fixtures.figures",
]

settings.register_profile(
    "namedqueue",
    deadline=None,  # a slow machine is not a bug
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("namedqueue")
