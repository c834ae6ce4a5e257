"""What is written by machine: each generator returns the files it owns, as text by path."""
