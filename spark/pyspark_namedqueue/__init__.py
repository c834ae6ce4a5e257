"""NamedQueue as a Spark data source: `df.write.format("namedqueue").option("queue", "orders")`.

Spark imports every installed module that is named `pyspark_…` when a session starts, and takes the
source from `DefaultSource`. So nothing here may fail or cost anything: at import time only the
standard library and pyspark are needed, and what a reader or writer needs is imported when it runs.
"""

from pyspark_namedqueue.source import NamedQueueSource as DefaultSource

__all__ = ["DefaultSource"]
