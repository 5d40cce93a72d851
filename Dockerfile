# Builds with docker, podman and buildah. Only the listed files go into the build.
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY src src
COPY client client
RUN cargo build --workspace --release --locked --bin redlock

# The same Debian as the build, or glibc differs.
FROM debian:12-slim
COPY --from=build /src/target/release/redlock /usr/local/bin/redlock
# For masters that others run with `tls: {}`: a certificate of a public authority.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/redlock"]
CMD ["operator"]
