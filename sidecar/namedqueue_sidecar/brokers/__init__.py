"""Brokers: one port, several adapters."""
