package main

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"warmroute/index"
	"warmroute/index/indexpb"
	"warmroute/internal/config"
	"warmroute/internal/testenv"
	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
)

// TestIndexService: the index of the router's own replicas is answered over
// gRPC; a service that breaks leaves the router not ready.
func TestIndexService(t *testing.T) {
	sim := testenv.StartSimulator(t)
	ports := must.Get(testenv.FreePorts(3))(t)
	service, admin := fmt.Sprint("127.0.0.1:", ports[1]), fmt.Sprint("127.0.0.1:", ports[2])
	text := fmt.Sprintf("listen: 127.0.0.1:%d\nadmin: {listen: %q}\nindex_service: {listen: %q}\nxds: {listen: \"\"}\nfleet: {replicas: [{address: %q}]}\n",
		ports[0], admin, service, sim.Addr)
	file := &config.File[Config]{Path: filepath.Join(t.TempDir(), "warmroute.yaml"), Defaults: defaultConfig}
	r, _ := routerOf(t, file, text)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- r.run(ctx, file) }()
	until(t, "the router is ready", func() bool { code, _ := get(t, "http://"+admin+"/readyz"); return code == http.StatusOK })

	conn := must.Get(grpc.NewClient(service, grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	defer conn.Close()
	if names := services(t, conn); !strings.Contains(names, indexpb.CacheIndex_ServiceDesc.ServiceName) {
		t.Errorf("services by reflection: %s", names)
	}
	prompt := make([]uint32, 64)
	for i := range prompt {
		prompt[i] = uint32(1000 + i)
	}
	complete(t, sim.Addr, prompt)
	q := &indexpb.LookupRouteRequest{Model: "sim", HashScheme: index.SchemeTokens, BlockSize: 16}
	for _, k := range prefixhash.AppendTokens(nil, prefixhash.TokenRoot("sim", prefixhash.LoRA{}), prompt, prefixhash.Blocks{Size: 16}, nil) {
		q.BlockHashes = append(q.BlockHashes, binary.BigEndian.AppendUint64(nil, uint64(k)))
	}
	until(t, "the prompt is found", func() bool {
		out, err := indexpb.NewCacheIndexClient(conn).LookupRoute(t.Context(), q)
		return err == nil && len(out.GetRoutes()) == 1 && out.GetRoutes()[0].GetMatchedTokens() == 64 && out.GetRoutes()[0].GetReplicaId() == sim.Addr
	})
	if _, page := get(t, "http://"+admin+"/metrics"); !strings.Contains(page, `warmroute_index_entries{model="sim"} 4`) {
		t.Error("the metrics page lacks the index's four entries")
	}

	must.Do(t, r.replicas.service.listener.Close())
	until(t, "not ready without its service", func() bool {
		code, why := get(t, "http://"+admin+"/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(why, "the index service is not serving")
	})
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "index service") {
		t.Errorf("the router ended with %v, want the service's error", err)
	}
}

func TestIndexServiceOff(t *testing.T) {
	var s indexService
	if err := s.open(); err != nil || s.ready() != nil || s.Run(t.Context()) != nil {
		t.Errorf("a service without an address: %v", err)
	}
}

// TestIndexServiceIsGuarded by the configured means; a warning reports where
// nothing guards it.
func TestIndexServiceIsGuarded(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "token")
	must.Do(t, os.WriteFile(secret, []byte("s3cret"), 0o600))
	c := must.Get(parseConfig(t, "index_service: {listen: \"127.0.0.1:0\", tls: {self_signed: true}, token_file: "+secret+"}"))(t)
	x := index.New(index.Options{})
	defer x.Close()
	s := newIndexService(c, x, nil, nil, slog.New(slog.DiscardHandler))
	must.Do(t, s.open())
	testenv.Run(t, s.Run)
	for bearer, want := range map[string]codes.Code{"": codes.Unauthenticated, "Bearer wrong": codes.Unauthenticated, "Bearer s3cret": codes.OK} {
		conn, err := grpc.NewClient(s.listener.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})))
		if err != nil {
			t.Fatal(err)
		}
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", bearer)
		_, err = indexpb.NewCacheIndexClient(conn).GetCacheState(ctx, &indexpb.GetCacheStateRequest{})
		if status.Code(err) != want {
			t.Errorf("authorization %q: %v, want %v", bearer, err, want)
		}
		conn.Close()
	}
	broken := indexService{c: IndexServiceConfig{Listen: "127.0.0.1:0", TokenFile: "/nonexistent"}}
	if err := broken.open(); err == nil || !strings.Contains(err.Error(), "index_service.token_file") {
		t.Errorf("%v, want the file named", err)
	}
	if _, err := parseConfig(t, "index_service: {tls: {key_file: k}}"); err == nil || !strings.Contains(err.Error(), "index_service.tls.cert_file: is missing beside key_file") {
		t.Errorf("%v, want the field named", err)
	}
}

// complete sends a prompt of token ids to a replica.
func complete(t *testing.T, addr string, prompt []uint32) {
	t.Helper()
	testenv.Post(t, "http://"+addr+"/v1/completions", map[string]any{"model": "sim", "prompt": prompt, "max_tokens": 1}).Into(t, nil)
}

func get(t *testing.T, url string) (code int, body string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	raw := must.Get(io.ReadAll(resp.Body))(t)
	return resp.StatusCode, string(raw)
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testenv.Until(t, 30*time.Second, what, ok)
}

// services lists the services that a server reports.
func services(t *testing.T, conn *grpc.ClientConn) string {
	t.Helper()
	s := must.Get(grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context()))(t)
	must.Do(t, s.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}}))
	out := must.Get(s.Recv())(t)
	return fmt.Sprint(out.GetListServicesResponse().GetService())
}
