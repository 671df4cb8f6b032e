package tracereader

import (
	"strings"
	"testing"

	"warmroute/internal/tracefile"
)

const begin = `{"trace":1,"run":"a","t":1}` + "\n"

func TestBadLinesAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		begin + `{"n":1,"t":1,"waited":1e7}` + "\n": "after 1e+07 s",
		begin + `{"n":1,"t":1,"idle":-1}` + "\n":    "idle for -1 s",
		begin + `{"n":1,"t":1,"lacked":-1}` + "\n":  "-1 tokens lacking",
		`{"n":1}` + "\n":                                                     "line 1: the file does not begin",
		"x\n":                                                                "line 1: ",
		`{"trace":2,"run":"a"}` + "\n":                                       "version 2",
		begin + `{"n":1,"t":-1}` + "\n":                                      "line 2: -1 is no time",
		begin + `{"n":1,"t":1e11}` + "\n":                                    "no time",
		begin + `{"n":1,"t":1,"tokens":-1}` + "\n":                           "do not agree",
		begin + `{"n":1,"t":1,"tokens":5,"cached":6}` + "\n":                 "do not agree",
		begin + `{"n":1,"t":1,"tokens":99999999999}` + "\n":                  "do not agree",
		begin + `{"n":1,"t":1,"tokens":32,"block":16,"blocks":[1]}` + "\n":   "no ranges",
		begin + `{"n":1,"t":1,"tokens":32,"blocks":[1,2]}` + "\n":            "no ranges",
		begin + `{"n":1,"t":1,"tokens":32,"block":16,"blocks":[0,4]}` + "\n": "more than 32 tokens hold",
		begin + `{"n":1,"t":1,"tokens":32,"block":16,"blocks":[18446744073709551615,2]}` + "\n": "more than",
		begin + `{"n":1,"t":1,"tokens":32,"block":16,"blocks":[0,0]}` + "\n":                    "more than",
		begin + `{"fleet":[{"replica":"a","blocks":-1}]}` + "\n":                                `replica "a"`,
		begin + strings.Repeat("x", LongestLine+1):                                              "longer than",
	} {
		err := new(Reader).Read(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100q: error %v, want %q", text, err, want)
		}
	}
}

// TestAnUnfinishedLineIsLeftOut: the router may be writing it, or a crash has ended it, and the next
// router's first line is behind it. So are lines of unknown kinds.
func TestAnUnfinishedLineIsLeftOut(t *testing.T) {
	n := 0
	r := Reader{Request: func(*Request) error { n++; return nil }}
	text := begin + `{"later":1}` + "\n" + `{"n":1,"t":1,"tokens":5}` + "\n" + `{"n":2,"t":1,"tok`
	after := text + `{"trace":1,"run":"b","t":2}` + "\n" + `{"n":1,"t":2,"tokens":5}` + "\n"
	if err := r.Read(strings.NewReader(text)); err != nil || n != 1 {
		t.Errorf("%d requests, %v", n, err)
	}
	if err := r.Read(strings.NewReader(after)); err != nil || n != 3 || r.run != 1 {
		t.Errorf("after a crash: %d requests, the last of run %d, %v", n, r.run, err)
	}
	if !Begins([]byte(strings.TrimSpace(begin))) || Begins([]byte(`{"timestamp":1}`)) || Begins([]byte("x")) {
		t.Error("a trace is not recognized by its first line")
	}
}

// FuzzReader: any file is read or refused, and the requests that are read keep Reader's
// promises.
func FuzzReader(f *testing.F) {
	f.Add(begin + `{"fleet":[{"replica":"a","model":"m","block":16,"blocks":640,"ranks":1}]}` + "\n" +
		`{"n":1,"t":1.5,"route":"r","model":"m","tokens":100,"block":16,"blocks":[0,4,9,1],"cached":16,"held":32,"reason":"warm","to":"a"}` + "\n" +
		`{"end":1,"t":2,"first":1.7,"status":200,"served":"b"}` + "\n" +
		`{"counted":1,"prompt":100,"cached":16,"output":5,"first_us":100,"took_us":2000}` + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		r := Reader{
			Request: func(q *Request) error {
				if q.Cached > q.Tokens || q.Held > q.Tokens || q.Run < 0 || q.Blocks() > 0 && (q.Blocks()-1)*q.BlockTokens > q.Tokens {
					t.Errorf("%+v", q)
				}
				return nil
			},
			Ended: func(run int, e *tracefile.Ended) error {
				if run < 0 || e.Number == 0 {
					t.Errorf("%+v", e)
				}
				return nil
			},
			Counted: func(run int, c *tracefile.Counted) error {
				if run < 0 || c.Number == 0 || c.Cached > c.Prompt || c.Output < 0 {
					t.Errorf("%+v", c)
				}
				return nil
			},
			Fleet: func([]tracefile.Replica) error { return nil },
		}
		_ = r.Read(strings.NewReader(text)) // refused: the test is that it ends
	})
}
