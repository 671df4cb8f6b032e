package prefill

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"warmroute/internal/fleet"
	"warmroute/render/openai"
)

// BenchmarkSend sends legs of 16 KB, one at a time, to a replica that answers at once and
// takes no memory for it.
func BenchmarkSend(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	numbers := func(n int) string { return strings.TrimSuffix(strings.Repeat("123,", n), ",") }
	text := fmt.Sprintf(`{"usage":{"prompt_tokens":4000},"kv_transfer_params":{"remote_block_ids":[[%s]]}}`, numbers(250))
	answer := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			go answers(c, answer)
		}
	}()
	client, err := fleet.HTTPOptions{}.Client(Connections)
	if err != nil {
		b.Fatal(err)
	}
	defer client.CloseIdleConnections()
	s := New(Options{Client: client, URL: fleet.HTTPOptions{}.URL})
	leg := &Leg{Addr: l.Addr().String(), Route: openai.Completions, ID: "request", Timeout: time.Minute,
		Body: fmt.Appendf(nil, `{"model":"m","prompt":[%s]}`, numbers(4000))}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Send(b.Context(), leg); err != nil {
			b.Fatal(err)
		}
	}
}

// answers gives every request on a connection the same answer.
func answers(c net.Conn, answer []byte) {
	defer c.Close()
	r := bufio.NewReaderSize(c, 64<<10)
	length := []byte("Content-Length: ")
	for left := 0; ; {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return
		}
		if n, ok := bytes.CutPrefix(line, length); ok {
			left, _ = strconv.Atoi(string(bytes.TrimSpace(n)))
		}
		if len(line) == len("\r\n") {
			if _, err := r.Discard(left); err != nil {
				return
			}
			if _, err := c.Write(answer); err != nil {
				return
			}
		}
	}
}
