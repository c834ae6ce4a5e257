"""RabbitMQ behind the broker port, on aiormq, the engine of aio-pika.

broker.py         the port: two connections, and who does what on them
credentials.py    where the broker is and who we are, read anew for each connection
connection.py     one connection that comes back by itself
channel.py        a channel without a task, a future or a lock for each message
messages.py       between jobs and AMQP messages
publishing.py     batches, confirms, returns and deadlines
subscription.py   deliveries, prefetch, resubscribing
acks.py           which acknowledgements can be said in one
shares.py         how a prefetch is divided over consumers
declaring.py      making queues exist, and forgetting them
management.py     what only the management API can do
walking.py        reading a dead-letter queue from its head without taking anything
dead_letters.py   browsing, discarding and redriving

Streams:

log.py            the port of streams, and who does what for it
tapping.py        one consumer of a stream, and how to know where the stream ends
locating.py       from positions to offsets
reading.py        a way through a stream, across reconnects
marks.py          how far groups have read, as records that anybody may write
cursors.py        those records on the broker, written and followed
holding.py        being the one who reads for a group
"""
