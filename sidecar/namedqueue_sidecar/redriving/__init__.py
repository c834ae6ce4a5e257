"""Sending dead letters back: which, how fast, how far, and the Kubernetes Job that does it."""
