"""`nq` and `kubectl nq`: a module for each verb, beside what several of them share."""
