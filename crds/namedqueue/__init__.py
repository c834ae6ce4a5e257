"""The contract between the parts of NamedQueue: models, topology, decisions and envelope.

Everything here is pure. Nothing opens a socket, reads a clock or draws a random number, so every
rule of the product can be tested as a function from values to values.
"""
