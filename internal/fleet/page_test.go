package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"warmroute/render/testkit/must"
)

func realPage(t testing.TB, version string) []byte {
	t.Helper()
	return must.Get(os.ReadFile(filepath.Join("testdata", "metrics-"+version+".txt")))(t)
}

// The pages were read from running servers of these versions.
func TestPageOfRealServers(t *testing.T) {
	at := time.Unix(1, 0)
	for _, c := range []struct {
		version, algorithm      string
		block                   int
		queries, hits, sum, cnt float64
	}{
		{"0.32.0", "sha256", 32, 7381, 1248, 0.2685396671295166, 21},
		{"0.21.0", "sha256_cbor", 16, 7381, 1296, 0.3783104419708252, 21},
	} {
		var p page
		must.Do(t, p.read(bytes.NewReader(realPage(t, c.version)), 1<<20))
		loads := p.loads(at)
		if p.blockSize != c.block || string(p.hashAlgo) != c.algorithm || p.start != 1.79523166413e+09 || len(loads) != 1 {
			t.Errorf("%s: block %d, algorithm %q, start %v, %d ranks", c.version, p.blockSize, p.hashAlgo, p.start, len(loads))
			continue
		}
		l := loads[0]
		if l.PrefixQueries != c.queries || l.PrefixHits != c.hits || l.TTFT.Seconds != c.sum || l.TTFT.Requests != c.cnt || l.Running != 0 || !l.At.Equal(at) {
			t.Errorf("%s: %+v", c.version, l)
		}
	}
}

const busyPage = `# HELP vllm:num_requests_running Number
vllm:num_requests_running{engine="1",model_name="a\"},engine=\"7"} 3.0
vllm:num_requests_running{engine="0",model_name="a"} 5
vllm:num_requests_waiting{model_name="a", engine="1"} 2 1700000000
vllm:gpu_cache_usage_perc{engine="1"} 0.25
vllm:kv_cache_usage_perc{engine="0"} 1.5
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 100
vllm:prefix_cache_queries_total{engine="0"} 1e3
vllm:prefix_cache_queries_created{engine="0"} 1.7e9
vllm:lora_requests_info{max_lora="2",running_lora_adapters="old",waiting_lora_adapters=""} 10
vllm:lora_requests_info{max_lora="2",running_lora_adapters="sql,fr",waiting_lora_adapters="fr,de"} 12
vllm:lora_requests_info{max_lora="2",running_lora_adapters="older",waiting_lora_adapters=""} 9
vllm:cache_config_info{block_size="16",engine="",num_gpu_blocks="640",prefix_caching_hash_algo="xxhash"} 1.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="+Inf"} 4
vllm:time_to_first_token_seconds_bucket{engine="1",le="0.5"} 1
vllm:time_to_first_token_seconds_bucket{engine="1",le="0.5",model_name="b"} 1
`

func TestPageRanksAndAdapters(t *testing.T) {
	var p page
	for range 2 { // the second time over the values of the first
		must.Do(t, p.read(strings.NewReader(busyPage), 1<<20))
		loras := []string{"de", "fr", "sql"}
		want := []Load{
			{Rank: 0, Running: 5, KVUsage: 1, PrefixQueries: 1000, LoRAs: loras, MaxLoRAs: 2},
			{Rank: 1, Running: 3, Waiting: 2, KVUsage: .25, LoRAs: loras, MaxLoRAs: 2,
				FirstTokens: firstTokens(map[float64]float64{0.5: 2, math.Inf(1): 4})},
		}
		if got := p.loads(time.Time{}); !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %+v\nwant %+v", got, want)
		}
		if p.blockSize != 16 || p.blocks != 640 || string(p.hashAlgo) != "xxhash" {
			t.Errorf("%d blocks of size %d, algorithm %s", p.blocks, p.blockSize, p.hashAlgo)
		}
	}
}

// TestPageConnector: the counters of a connector are read.
func TestPageConnector(t *testing.T) {
	const text = `vllm:external_prefix_cache_queries_total{engine="0"} 7000
vllm:external_prefix_cache_hits_total{engine="0"} 5000
`
	for moved, want := range map[string]Load{
		"": {Connector: Connector{AskedTokens: 7000, LoadedTokens: 5000}},
		"vllm:nixl_xfer_time_seconds_sum{engine=\"0\"} 1.5\n": {Connector: Connector{MoveSeconds: 1.5, AskedTokens: 7000, LoadedTokens: 5000}},
	} {
		var p page
		must.Do(t, p.read(strings.NewReader(text+moved), 1<<20))
		if l := p.loads(time.Time{}); len(l) != 1 || !reflect.DeepEqual(l[0], want) {
			t.Errorf("%q: %+v, want %+v", moved, l, want)
		}
	}
}

func TestStoreOf(t *testing.T) {
	for _, tt := range []struct {
		configured, connector, want string
		only                        bool
	}{
		{"", "", "", false},
		{"", "NixlConnector", "", false},
		{"", "MooncakeStoreConnector", "MooncakeStoreConnector", true},
		{"files", "OffloadingConnector", "files", false},
		{NoStore, "MooncakeStoreConnector", NoStore, false},
	} {
		r := Replica{Store: storeOf(tt.configured, tt.connector), Reported: Reported{Transfer: Transfer{Connector: tt.connector}}}
		if r.Store != tt.want || r.OnlyShared() != tt.only {
			t.Errorf("%+v: store %q, shared alone %v", tt, r.Store, r.OnlyShared())
		}
	}
}

// TestPageBoundsValues: sums of what a page says stay numbers that can be counted and printed.
func TestPageBoundsValues(t *testing.T) {
	for _, v := range []string{"1e300", "1.7976931348623157e308", "99999999999999999999"} {
		var text strings.Builder
		for _, name := range []string{"num_requests_running", "num_requests_waiting", "prefix_cache_queries_total", "time_to_first_token_seconds_sum", "generation_tokens_total"} {
			for i := range 3 {
				fmt.Fprintf(&text, "vllm:%s{model_name=\"%d\"} %s\n", name, i, v)
			}
		}
		var p page
		must.Do(t, p.read(strings.NewReader(text.String()), 1<<20))
		l := p.loads(time.Time{})[0]
		if l.Running != maxRequests || l.Waiting != maxRequests || l.PrefixQueries != 3*maxCount || l.TTFT.Seconds != 3*maxCount || l.Steps > 4*maxCount {
			t.Errorf("%s: %+v", v, l)
		}
	}
}

// How the page arrives does not matter, nor do lines longer than the buffer.
func TestPageInPieces(t *testing.T) {
	data := realPage(t, "0.32.0")
	data = append([]byte("vllm:num_requests_running{engine=\"0\",x=\""+strings.Repeat("y", 3*pageBuffer)+"\"} 99\n"), data...)
	data = append(data, "vllm:num_requests_running{engine=\"0\"} 4"...) // no newline at the end
	var whole, pieces page
	must.Do(t, whole.read(bytes.NewReader(data), 1<<20))
	must.Do(t, pieces.read(iotest.OneByteReader(bytes.NewReader(data)), 1<<20))
	if a, b := whole.loads(time.Time{}), pieces.loads(time.Time{}); !reflect.DeepEqual(a, b) || a[0].Running != 4 || a[0].PrefixQueries != 7381 {
		t.Errorf("whole  %+v\npieces %+v", a, b)
	}
}

// A hostile page costs its limit in reading and the buffer in memory.
func TestPageLimits(t *testing.T) {
	endless := func(line string) io.Reader {
		return io.MultiReader(strings.NewReader(line), repeat(line))
	}
	var p page
	if err := p.read(endless("x"), 10<<20); !errors.Is(err, errPageTooLarge) {
		t.Errorf("endless line: %v", err)
	}
	if err := p.read(endless("vllm:num_requests_running{engine=\"3\"} 1\n"), 10<<20); !errors.Is(err, errPageTooLarge) {
		t.Errorf("endless page: %v", err)
	}
	var many strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&many, "vllm:num_requests_running{engine=\"%d\"} 1\n", i)
	}
	must.Do(t, p.read(strings.NewReader(many.String()), 10<<20))
	loads := p.loads(time.Time{})
	if len(loads) != maxRank+1 {
		t.Errorf("%d ranks", len(loads))
	}
	if err := p.read(iotest.ErrReader(io.ErrUnexpectedEOF), 1); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a broken answer: %v", err)
	}
}

type repeat string

func (r repeat) Read(p []byte) (int, error) {
	n := 0
	for n+len(r) <= len(p) {
		n += copy(p[n:], r)
	}
	if n == 0 {
		n = copy(p, r)
	}
	return n, nil
}

func TestPageDoesNotAllocate(t *testing.T) {
	for name, data := range map[string][]byte{"real": realPage(t, "0.32.0"), "ranks": []byte(busyPage)} {
		var p page
		r := bytes.NewReader(data)
		if n := testing.AllocsPerRun(100, func() {
			r.Reset(data)
			must.Do(t, p.read(r, 1<<20))
		}); n != 0 {
			t.Errorf("%s: %v allocations per page", name, n)
		}
	}
}

func FuzzPage(f *testing.F) {
	f.Add([]byte(busyPage))
	f.Add([]byte("vllm:num_requests_running{engine=\"\\\\\"} 1\n"))
	f.Add([]byte("process_start_time_seconds 1e9"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var p, q page
		must.Do(t, p.read(bytes.NewReader(data), 1<<20))
		must.Do(t, q.read(iotest.HalfReader(bytes.NewReader(data)), 1<<20))
		a, b := p.loads(time.Time{}), q.loads(time.Time{})
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("%+v\n%+v", a, b)
		}
		for i, l := range a {
			if l.Running < 0 || l.KVUsage < 0 || l.KVUsage > 1 || l.Rank < 0 || l.Rank > maxRank || i > 0 && a[i-1].Rank >= l.Rank {
				t.Fatalf("%+v", l)
			}
		}
	})
}

// TestDraftless: a page without metrics of speculative decoding shows that no model drafts, if
// it has vLLM's configuration of the cache, wherever in the page the metrics are.
func TestDraftless(t *testing.T) {
	const config, drafts = "vllm:cache_config_info{block_size=\"16\"} 1\n", "vllm:spec_decode_num_drafts_total{engine=\"0\"} 0\n"
	var p page
	for text, want := range map[string]bool{config: true, "": false, drafts: false, config + drafts: false, drafts + config: false} {
		if err := p.read(strings.NewReader(text), 1<<20); err != nil || p.draftless() != want {
			t.Errorf("%q: draftless %t (%v), want %t", text, p.draftless(), err, want)
		}
	}
}
