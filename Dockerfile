# The images of NamedQueue: `--target operator | sidecar | spark`, and `python`, the bare interpreter
# that the first two stand on. `hack/images build` builds them with Docker, or without.
#
# BASE is any Debian with Python 3.11 or newer, its venv module and apt. It only lends its files:
# every image starts from nothing and takes a stripped copy of it plus one virtual environment, so
# there is no compiler, installer or package manager in any layer. They run as 65532 and need no
# writable file system. Every dependency is checked against the hashes of requirements.lock.
ARG BASE=docker.io/library/python:3.13-slim

FROM ${BASE} AS trimmed
COPY hack/container/trim /tmp/
RUN sh /tmp/trim && rm -rf /tmp/* /run/*

FROM scratch AS python
COPY --from=trimmed / /
ENV PATH=/opt/namedqueue/bin:/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
CMD ["python3"]
LABEL org.opencontainers.image.vendor="NamedQueue" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.title="namedqueue-python" \
    org.opencontainers.image.description="Python on a stripped Debian, without installers"

FROM ${BASE} AS builder
WORKDIR /build
ENV VIRTUAL_ENV=/opt/namedqueue UV_NO_CACHE=1 UV_PYTHON_DOWNLOADS=never UV_NO_PROGRESS=1
COPY hack/container/ /usr/local/bin/
COPY requirements.lock pyproject.toml ./
RUN --mount=type=secret,id=installer --mount=type=secret,id=certificates \
    --mount=type=secret,id=pip.conf \
    python3 -m venv /uv \
    && sed -n '/^uv==/,/[^\\]$/p' requirements.lock >uv.lock \
    && with-host-settings /uv/bin/pip install --no-cache-dir --require-hashes -r uv.lock \
    && /uv/bin/uv venv --python python3 /opt/namedqueue

# The wheel that a release publishes, with all rooms; an image's extra decides which can run.
FROM builder AS wheel
COPY README.md LICENSE ./
COPY crds crds
COPY operator operator
COPY sidecar sidecar
COPY spark spark
COPY cli cli
RUN --mount=type=secret,id=installer --mount=type=secret,id=certificates \
    with-host-settings /uv/bin/uv build --wheel --build-constraints requirements.lock \
    --out-dir /dist

FROM builder AS sidecar-environment
RUN --mount=type=secret,id=installer --mount=type=secret,id=certificates \
    with-host-settings /uv/bin/uv pip install --require-hashes -c requirements.lock \
    -r pyproject.toml --extra sidecar \
    && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/namedqueue
COPY --from=wheel /dist /dist
RUN add-project

FROM python AS sidecar
COPY --from=sidecar-environment /opt/namedqueue /opt/namedqueue
ENTRYPOINT ["python", "-m", "namedqueue_sidecar"]
CMD []
LABEL org.opencontainers.image.title="namedqueue-sidecar" \
    org.opencontainers.image.description="The data plane of NamedQueue"

# The Kubernetes client's generated sources alone weigh 70 MB.
FROM builder AS operator-environment
RUN --mount=type=secret,id=installer --mount=type=secret,id=certificates \
    with-host-settings /uv/bin/uv pip install --require-hashes -c requirements.lock \
    -r pyproject.toml --extra operator \
    && cd /opt/namedqueue/lib/python3*/site-packages/kubernetes \
    && drop-sources client/api client/models aio/client/api aio/client/models \
    && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/namedqueue
COPY --from=wheel /dist /dist
RUN add-project

FROM python AS operator
COPY --from=operator-environment /opt/namedqueue /opt/namedqueue
ENTRYPOINT ["python", "-m", "namedqueue_operator"]
CMD []
LABEL org.opencontainers.image.title="namedqueue-operator" \
    org.opencontainers.image.description="The control plane of NamedQueue"

# Spark's own scripts want bash, and its scheduler wants Java; the rest is stripped as elsewhere.
FROM ${BASE} AS java
RUN --mount=type=secret,id=installer --mount=type=secret,id=certificates \
    [ ! -s /run/secrets/installer ] || . /run/secrets/installer \
    && mkdir -p /usr/share/man/man1 && apt-get update -qq \
    && apt-get install -qq --no-install-recommends default-jre-headless
COPY hack/container/trim /tmp/
RUN sh /tmp/trim bash && rm -rf /tmp/* /run/*

# Apart from the project, which changes often: half a gigabyte of Spark then stays as it is.
FROM builder AS spark-environment
RUN --mount=type=secret,id=installer --mount=type=secret,id=certificates \
    with-host-settings /uv/bin/uv pip install --require-hashes -c requirements.lock \
    -r pyproject.toml --extra spark \
    && cd /opt/namedqueue/lib/python3*/site-packages \
    && rm -rf pyarrow/include pyarrow/tests pyspark/examples pyspark/data \
    && ln -s "$PWD/pyspark" /opt/namedqueue/spark \
    && echo /opt/namedqueue/project >project.pth \
    && cp /usr/local/bin/spark-pod /opt/namedqueue/bin/ \
    && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/namedqueue

FROM builder AS spark-project
COPY --from=wheel /dist /dist
RUN /uv/bin/uv pip install --no-index --find-links /dist --no-deps --target /project namedqueue \
    && python3 -m compileall -q --invalidation-mode unchecked-hash /project

FROM scratch AS spark
COPY --from=java / /
COPY --from=spark-environment /opt/namedqueue /opt/namedqueue
COPY --from=spark-project /project /opt/namedqueue/project
ENV PATH=/opt/namedqueue/bin:/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 \
    SPARK_HOME=/opt/namedqueue/spark JAVA_HOME=/usr/lib/jvm/default-java \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PYSPARK_PYTHON=/opt/namedqueue/bin/python
USER 65532:65532
ENTRYPOINT ["spark-pod"]
CMD []
LABEL org.opencontainers.image.vendor="NamedQueue" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.title="namedqueue-spark" \
    org.opencontainers.image.description="Spark with the data source of NamedQueue"
