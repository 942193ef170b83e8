# One image with the three programs. The command says which one runs: api, worker, or sluice with its arguments.
#
# The base images are parameters, for a registry mirror or a base of one's own:
#   docker build --build-arg GO_IMAGE=mirror.example/golang:1.26 --build-arg BASE_IMAGE=gcr.io/distroless/static .
# Nothing here needs BuildKit.
ARG GO_IMAGE=golang:1.26-bookworm
ARG BASE_IMAGE=scratch

FROM ${GO_IMAGE} AS build
WORKDIR /src
# The modules first, alone: they stay cached until go.mod or go.sum changes.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
# Static, so that they run on an empty base; -trimpath, so that the same source makes the same bytes anywhere.
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X sluice/internal/process.Version=${VERSION}" \
    -o /out/ ./cmd/api ./cmd/worker ./cmd/sluice && mkdir /state

FROM ${BASE_IMAGE}
# For servers that are reached with TLS.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/ /usr/local/bin/
# An api's accept journal (ACCEPT_JOURNAL). A volume that is mounted here first takes its owner from the image.
COPY --from=build --chown=65532:65532 /state /var/lib/sluice
ENV PATH=/usr/local/bin
# The number and not a name: an empty base has no list of users, and Kubernetes' runAsNonRoot wants to see one.
USER 65532:65532
CMD ["sluice", "--help"]
