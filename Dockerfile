# The container image of mover: `make docker` builds it, docs/container.md says
# how to run it, `make docker-test` proves it.
#
# Another base can stand in for each stage, such as a mirror's copy, or one made
# with debootstrap where no image can be pulled: packages it already has are not
# asked of the network. With a vendor folder in the context (go mod vendor) the
# modules need no network either. Nothing here needs BuildKit.
ARG BUILD_BASE=golang:1.26-bookworm
ARG RUN_BASE=debian:bookworm-slim

FROM ${BUILD_BASE} AS build
# libibverbs-dev for its header: the library itself is opened at run time.
RUN set -eu; \
    missing=; \
    for p in gcc libc6-dev libibverbs-dev; do \
      dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null | grep -qx installed || missing="$missing $p"; \
    done; \
    if [ -n "$missing" ]; then \
      apt-get update; \
      DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing; \
      rm -rf /var/lib/apt/lists/*; \
    fi
# The toolchain that is there, or an error that says so: no silent download.
ENV PATH=/usr/local/go/bin:$PATH GOTOOLCHAIN=local CGO_ENABLED=1
# Empty is Go's own default.
ARG GOPROXY=
WORKDIR /src
COPY . .
ARG VERSION=unversioned
# The flags of the Makefile. Without the header the build would pass, and the
# program never find a device.
RUN set -eu; \
    test -e /usr/include/infiniband/verbs.h; \
    [ -n "$GOPROXY" ] || unset GOPROXY; \
    go build -trimpath -buildvcs=false -ldflags "-X main.version=$VERSION" -o /out/mover ./cmd/mover

FROM ${RUN_BASE}
# The library, and the user-space drivers that it loads.
RUN set -eu; \
    missing=; \
    for p in libibverbs1 ibverbs-providers; do \
      dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null | grep -qx installed || missing="$missing $p"; \
    done; \
    if [ -n "$missing" ]; then \
      apt-get update; \
      DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing; \
      rm -rf /var/lib/apt/lists/*; \
    fi; \
    groupadd --gid 9470 mover; \
    useradd --uid 9470 --gid 9470 --home-dir /var/lib/mover --no-create-home --shell /usr/sbin/nologin mover; \
    install -d -o 9470 -g 9470 -m 0700 /var/lib/mover
COPY --from=build /out/mover /usr/local/bin/mover
COPY deploy/config.yaml /etc/mover/config.yaml

# By number, so that an orchestrator can tell that it is not root.
USER 9470:9470
# Keys, tokens and the record of jobs: a node that loses them is another node.
VOLUME /var/lib/mover
ENTRYPOINT ["/usr/local/bin/mover"]
CMD ["run", "--config", "/etc/mover/config.yaml"]
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s --retries=3 CMD ["/usr/local/bin/mover", "healthz", "--ready"]

ARG VERSION=unversioned
ARG REVISION=
LABEL org.opencontainers.image.title="mover" \
      org.opencontainers.image.description="Moves bulk data between hosts over RDMA, verified and durable" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.documentation="docs/container.md in the source tree"
