# The image of the detector, the sidecar and the injector; `--target spark` makes that of the pipeline, which has Java besides.
ARG PYTHON=3.11-slim-bookworm

FROM python:${PYTHON} AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY clients/python clients/python
COPY detector detector
COPY helm/image helm/image
RUN helm/image/install /app archive

FROM build AS build-spark
RUN rm -rf /app && helm/image/install /app archive,spark

FROM python:${PYTHON} AS spark
# Debian keeps only the newest of a release's packages, so a pinned version would soon not be found.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build-spark /app /app
COPY helm/image/spark /usr/local/bin/stilltrue-spark
ENV PATH=/app/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp
LABEL org.opencontainers.image.title="stilltrue-spark" \
      org.opencontainers.image.description="Stilltrue's pipeline on Spark: analyze and stream, also as driver and executor on Kubernetes" \
      org.opencontainers.image.source="https://github.com/stilltrue/stilltrue" \
      org.opencontainers.image.licenses="Apache-2.0"
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["stilltrue-spark"]
CMD ["analyze", "--help"]

FROM python:${PYTHON} AS stilltrue
COPY --from=build /app /app
ENV PATH=/app/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/tmp STILLTRUE_SERVE_DATA=/data
LABEL org.opencontainers.image.title="stilltrue" \
      org.opencontainers.image.description="Detects deadlock, termination and lost tokens in running gRPC services" \
      org.opencontainers.image.source="https://github.com/stilltrue/stilltrue" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN install -d -o 65532 -g 65532 -m 700 /data
VOLUME /data
USER 65532:65532
WORKDIR /tmp
EXPOSE 7600 7601 7602
ENTRYPOINT ["stilltrue"]
CMD ["serve"]
