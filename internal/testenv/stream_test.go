package testenv

import (
	"strings"
	"testing"
	"time"
)

func TestSamples(t *testing.T) {
	page := "# HELP a x\na{reason=\"b\",z=\"1\"} 2.0\na{reason=\"b\",z=\"2\"} 3\na_total{reason=\"b\"} 9\na 1\n"
	got := Samples(page, "a", "reason")
	if len(got) != 2 || got["b"] != 5 || got[""] != 1 {
		t.Error(got)
	}
}

func TestQuantile(t *testing.T) {
	times := []time.Duration{4, 1, 3, 2}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 3, 0.99: 4, 1: 4} {
		if got := Quantile(times, q); got != want {
			t.Errorf("%v of %v is %v, expected %v", q, times, got, want)
		}
	}
	if got := Quantile(nil, 0.5); got != 0 {
		t.Errorf("of nothing it is %v", got)
	}
}

// TestRead: both dialects' streams, and that the first text is timed.
func TestRead(t *testing.T) {
	for name, stream := range map[string]string{
		"chat":       "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"so\"}}]}\n\n",
		"completion": "data: {\"choices\":[{\"text\":\"so\"}]}\n\n",
	} {
		usage := "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\ndata: [DONE]\n\n"
		a, err := read(strings.NewReader(stream+usage), time.Now().Add(-time.Second))
		if err != nil || a.Text != "so" || a.Prompt != 9 || a.Cached != 4 || a.TTFT < time.Second {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
		if _, err := read(strings.NewReader(stream), time.Now()); err == nil {
			t.Errorf("%s: a stream without its end was taken for whole", name)
		}
	}
}
