"""From what a caller sent to a job that the broker has confirmed.

problems.py   why something was refused, as a value
jobs.py       checks fields and limits, and makes jobs
sending.py    jobs to the broker, many callers in one batch
"""
