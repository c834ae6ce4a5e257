"""The same lifecycle without a broker: in this process, in memory or in a SQLite file.

broker.py         the port: routes publications to queues
queues.py         one live queue: arrivals, deliveries, time passing
ephemeral.py      a queue that expires, in memory whatever keeps the others
consumers.py      a worker's hold on a queue
streams.py        one live stream: messages appended, read by many, gone by policy
followers.py      who reads a stream, and who holds its groups
stream_index.py   which messages a stream holds; no I/O
log.py            a stream as the port has it
settings.py       what a manifest means for keeping jobs and messages; no I/O
index.py          which job is next, which is due, which has waited too long; no I/O
dead_letters.py   browsing, discarding and redriving
journal.py        group commit: all that happened in one turn of the loop, in one transaction
storage.py        where messages are kept: the protocol, and memory
sqlite.py         the file
surroundings.py   what all of them share
lock.py           one process at a time
"""

from namedqueue_sidecar.brokers.builtin.broker import BuiltinBroker
from namedqueue_sidecar.brokers.builtin.storage import StorageError

__all__ = ["BuiltinBroker", "StorageError"]
