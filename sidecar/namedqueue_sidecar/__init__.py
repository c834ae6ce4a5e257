"""The data plane: takes jobs in over HTTP, hands them to the app, and sees each to its end.

    brokers/     the port to a broker, and its adapters
    app/         the port to the app beside us, and its HTTP client
    consuming/   from a delivery to its end: attempts, retries, dead letters, order, pace
    api/         the HTTP API

Work flows one way: an adapter calls a worker with deliveries, the worker calls the app, and what
it decides goes back to the adapter in batches. All of that are plain calls on one event loop, so
no job costs a task or a future of its own.
"""
