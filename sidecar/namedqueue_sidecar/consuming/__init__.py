"""From a delivery to its end.

Who works on a queue, each type by its own rules:

working.py      a queue that is worked off: the worker that its type needs, and its app
durable.py      the worker of a durable queue: attempts, retries, dead letters
ordered.py      the worker of a FIFO queue: one job of a group at a time, retried in place
ephemeral.py    the worker of an ephemeral queue: best effort
streaming.py    the worker of a stream: pushes it to the app for each group, in order
leasing.py      jobs for workers that cannot be called: leases and how they end
readers.py      pieces of a stream for those who ask

What they have in common:

workplace.py    what a worker is given
rules.py        what a manifest says of attempts
gate.py         whether the app is there
pace.py         how fast jobs may start
alarm.py        a moment at which to look again
validation.py   whether a payload is what the queue promises
attempts.py     what is known of an attempt, and where the job goes after it
flights.py      the attempts under way
guarding.py     keys claimed before the app is called, and what became of them
onward.py       how a job leaves an attempt: published, confirmed, recorded, then acknowledged
outbox.py       publications that must arrive before their delivery is acknowledged
hands.py        how deliveries go back to the broker, and which of them came before
copies.py       jobs that come again because a connection was lost
tally.py        what happened, for the metrics

What one of them needs:

groups.py       which job of a FIFO queue may run next
resting.py      groups of a FIFO queue between two attempts
progress.py     attempts made in place, for jobs that come again
following.py    one group's way through a stream: its turn, its cursor, its halts
interims.py     jobs of an ephemeral queue between two attempts, in memory
pulls.py        who waits for a job to lease
lease.py        a leased job: how a worker gets it, and how that ends
leased.py       the leases under way, and how others ended
deadlines.py    when leases end
inhand.py       jobs in our hands for leases, and how many more are wanted
"""
