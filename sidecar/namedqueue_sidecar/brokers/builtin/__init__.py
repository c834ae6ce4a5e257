"""The same lifecycle without a broker: in this process, in memory or in a SQLite file.

broker.py         the port: routes publications to queues
queues.py         one live queue: arrivals, deliveries, time passing
consumers.py      a worker's hold on a queue
index.py          which job is next, which is due, which has waited too long; no I/O
dead_letters.py   browsing, discarding and redriving
journal.py        group commit: all that happened in one turn of the loop, in one transaction
storage.py        where messages are kept: the protocol, and memory
sqlite.py         the file
lock.py           one process at a time
"""

from namedqueue_sidecar.brokers.builtin.broker import BuiltinBroker
from namedqueue_sidecar.brokers.builtin.storage import StorageError

__all__ = ["BuiltinBroker", "StorageError"]
