"""The HTTP API of the data plane.

    exchange.py    requests and responses as plain values
    messages.py, leases.py, dead_letters.py, queues.py, health.py      the calls
    routes.py      which path leads to which call
    schemas.py     the documents that go in and out
    openapi.py     the description of all of it
    server.py      the one module that knows the HTTP library

A call is a function from the plane and a request to a response. It knows neither sockets nor who
is calling: whoever serves it has authenticated the caller and resolved the namespace before.
"""
