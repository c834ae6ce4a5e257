"""The test bed: real brokers, databases and clusters, started and stopped on this machine.

Each part has a command in `hack/` (`broker`, `postgres`, `cluster`, `images`) and a pytest
fixture in `tests/fixtures/`; both call the same functions here.
"""
