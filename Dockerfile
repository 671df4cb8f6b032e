# A static, non-root image of the router and the sidecar: docker build -t warmroute .
# GO_IMAGE is the only image that is built on; --build-arg GO_IMAGE=golang:1.26@sha256:... pins it (docs/installation.md).
ARG GO_IMAGE=golang:1.26
FROM ${GO_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
COPY render/go.mod render/go.sum render/
COPY lab/go.mod lab/go.sum lab/
RUN go mod download && go -C lab mod download
COPY . .
# kube: replicas from an InferencePool. --build-arg TAGS= leaves Kubernetes' client out, for machines without a cluster.
ARG TAGS=kube
RUN CGO_ENABLED=0 go build -tags "$TAGS" -trimpath -ldflags="-s -w" -o /out/ ./cmd/... \
 && CGO_ENABLED=0 go -C lab build -trimpath -ldflags="-s -w" -o /out/ ./cmd/lab ./cmd/vllmsim
RUN mkdir -p /cache/warmroute

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/ /usr/local/bin/
# Tokenizer files: a new volume that is mounted on this folder takes over its owner.
COPY --from=build --chown=65532:65532 /cache/ /var/cache/
ENV HF_HOME=/var/cache/warmroute
USER 65532:65532
EXPOSE 9002 9006
ENTRYPOINT ["/usr/local/bin/extproc"]
CMD ["serve", "-config", "/etc/warmroute/warmroute.yaml"]
