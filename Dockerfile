# Builds with docker, podman and buildah, for linux/amd64 and linux/arm64 (docker buildx build --platform). Only the listed files go into the
# build. It runs packaging/image.sh, which `make test` runs without Docker.
FROM docker.io/library/rust:1.95-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates musl-tools && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY src src
COPY crates crates
COPY packaging packaging
ARG TARGETARCH
RUN packaging/image.sh "$TARGETARCH" /image

# The image has one static program and the certificates of public authorities. It has no shell and no packages.
FROM scratch
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="redlock-operator" \
      org.opencontainers.image.description="Kubernetes-native distributed locks and leader election through Redlock" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.source="https://github.com/redlock-operator/redlock-operator" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /image /
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/redlock"]
CMD ["operator"]
