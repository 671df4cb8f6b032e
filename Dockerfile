# A static, non-root image of the router and the sidecar: docker build -t warmroute .
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# kube: replicas from an InferencePool. --build-arg TAGS= leaves Kubernetes' client out, for machines without a cluster.
ARG TAGS=kube
RUN CGO_ENABLED=0 go build -tags "$TAGS" -trimpath -ldflags="-s -w" -o /out/ ./cmd/extproc ./cmd/kvsub ./cmd/vllmsim

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/ /usr/local/bin/
USER 65532:65532
EXPOSE 9002 9090
ENTRYPOINT ["/usr/local/bin/extproc"]
CMD ["serve", "-config", "/etc/warmroute/warmroute.yaml"]
