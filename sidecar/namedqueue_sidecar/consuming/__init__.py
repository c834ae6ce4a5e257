"""From a delivery to its end.

durable.py      the worker of a durable queue: attempts, retries, dead letters
ordered.py      the worker of a FIFO queue: one job of a group at a time, retried in place
groups.py       which job of a FIFO queue may run next
progress.py     attempts made in place, for jobs that come again
leasing.py      jobs for workers that cannot be called: leases and how they end
lease.py        a leased job, and the ways in which a lease ends
pulls.py        who waits for a job to lease
deadlines.py    when leases end
attempts.py     what is known of an attempt, and where the job goes after it
outbox.py       publications that must arrive before their delivery is acknowledged
copies.py       jobs that come again because a connection was lost
gate.py         whether the app is there
pace.py         how fast jobs may start
validation.py   whether a payload is what the queue promises
tally.py        what happened, for the metrics
"""
