"""What outlives a job: who has run it, and why it failed. In PostgreSQL, or in SQLite on a laptop.

port.py         what the data plane needs of a store
sql.py          the store in a SQL database
claims.py       who runs the job of a key, and who has run it
letters.py      why jobs failed for good, and how far people are with them
addresses.py    where the store is, and who we are there
database.py     transactions with a deadline, and one exception when there is no store to be had
migrations.py   how the tables came about, in numbered steps
schema.py       the tables as they are now

SQLAlchemy is twenty megabytes of a pod's memory, so nothing outside of this folder imports it:
who needs no store does not load one.
"""
