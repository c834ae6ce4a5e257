"""From a delivery to its end.

durable.py      the worker of a durable queue: attempts, retries, dead letters
attempts.py     what is known of an attempt, and where the job goes after it
outbox.py       publications that must arrive before their delivery is acknowledged
copies.py       jobs that come again because a connection was lost
gate.py         whether the app is there
pace.py         how fast jobs may start
validation.py   whether a payload is what the queue promises
tally.py        what happened, for the metrics
"""
