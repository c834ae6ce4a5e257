"""Jobs that come with the data source, each run by `spark-submit` or by `python -m`."""
