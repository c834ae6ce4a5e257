"""The entry point that Spark knows: what can be read and written under the name `namedqueue`."""

from uuid import uuid4

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pyspark_namedqueue.options import InvalidOption, Letters, Stretch, Writing


class NamedQueueSource(DataSource):
    """NamedQueue as a sink of DataFrames, and dead letters and streams as tables."""

    @classmethod
    def name(cls) -> str:
        return "namedqueue"

    def schema(self) -> str:
        """Return the columns of what is read."""
        from pyspark_namedqueue import dead_letters, streams  # noqa: PLC0415  # see the package

        return dead_letters.SCHEMA if self._reads_letters() else streams.SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002  # it is ours
        """Return what reads dead letters, or a stretch of a stream."""
        from pyspark_namedqueue.dead_letters import DeadLetterReader  # noqa: PLC0415
        from pyspark_namedqueue.streams import StretchReader  # noqa: PLC0415

        if self._reads_letters():
            return DeadLetterReader(Letters.read(self.options))
        return StretchReader(Stretch.read(self.options, following=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Return what a query reads a stream with."""
        from pyspark_namedqueue.streams import Follower  # noqa: PLC0415

        if self._reads_letters():
            raise InvalidOption("dead letters are read as a batch; a query follows option stream")
        return Follower(Stretch.read(self.options, following=True))

    def writer(
        self, schema: StructType, overwrite: bool
    ) -> DataSourceWriter | DataSourceArrowWriter:
        """Return what writes a DataFrame; its id is drawn here, once, on the driver."""
        from pyspark_namedqueue.writing import ArrowWriter, RowWriter  # noqa: PLC0415

        if overwrite:
            raise ValueError("jobs in a queue cannot be overwritten; use mode append")
        options = Writing.read(self.options, schema.names)
        return (ArrowWriter if options.arrow else RowWriter)(options, uuid4().hex)

    def streamWriter(  # noqa: N802  # Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter | DataSourceStreamArrowWriter:
        """Return what writes a query's batches."""
        from pyspark_namedqueue.writing import StreamArrowWriter, StreamRowWriter  # noqa: PLC0415

        if overwrite:
            raise ValueError("jobs in a queue cannot be overwritten; use output mode append")
        options = Writing.read(self.options, schema.names)
        return (StreamArrowWriter if options.arrow else StreamRowWriter)(options)

    def _reads_letters(self) -> bool:
        given = {name.lower() for name in self.options}
        if ("deadletters" in given) == ("stream" in given):
            raise InvalidOption("give option deadLetters or option stream to read, and not both")
        return "deadletters" in given
