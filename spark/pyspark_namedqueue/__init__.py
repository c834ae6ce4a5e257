"""The Spark data source `namedqueue`.

Spark imports every installed module whose name begins with `pyspark_`, unguarded, in every session.
So the top level here imports nothing but the standard library and pyspark.
"""
