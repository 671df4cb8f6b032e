package hash

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"warmroute/internal/cli/jsonlines"
	"warmroute/render/testkit/golden"
)

// TestVectors compares every hash that vLLM's own functions computed, in one run.
func TestVectors(t *testing.T) {
	generation := map[string]string{"0.21.0": "untagged", "0.32.0": "tagged"}
	var in bytes.Buffer
	var want [][]string
	files, _ := filepath.Glob("../../../prefixhash/testdata/*.json.gz")
	if len(files) < 2 {
		t.Fatalf("%d vector files", len(files))
	}
	for _, name := range files {
		var file struct {
			VLLM    string
			Vectors []map[string]any
		}
		golden.Read(t, name, &file)
		version, _, _ := strings.Cut(file.VLLM, "+")
		for _, v := range file.Vectors {
			if v["embeds"] == true { // no such field
				continue
			}
			line, err := json.Marshal(map[string]any{
				"scheme": v["algo"], "generation": generation[version], "seed": v["seed"], "block_size": v["block_size"],
				"tokens": v["tokens"], "lora": v["lora"], "cache_salt": v["cache_salt"], "mm": v["mm"],
			})
			if err != nil {
				t.Fatal(err)
			}
			in.Write(append(line, '\n'))
			var hashes []string
			for _, h := range v["hashes"].([]any) {
				hashes = append(hashes, h.(string))
			}
			want = append(want, hashes)
		}
	}
	var out bytes.Buffer
	if err := Run(&in, &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != len(want) || len(want) < 400 {
		t.Fatalf("%d answers, want %d, at least 400", len(lines), len(want))
	}
	for i, line := range lines {
		var got struct{ Hashes []string }
		if err := json.Unmarshal([]byte(line), &got); err != nil || got.Hashes == nil || !slices.Equal(got.Hashes, want[i]) && len(want[i]) > 0 {
			t.Errorf("line %d: %s, want %v", i+1, line, want[i])
		}
	}
}

const good = `{"scheme":"sha256","generation":"tagged","seed":null,"block_size":2,"tokens":[1,2,3]`

func TestBadLines(t *testing.T) {
	for in, want := range map[string]string{
		`{`:                                "not valid JSON at byte 1",
		`[]`:                               "a line is a list of 0, want a JSON object",
		`7`:                                "a line is an integer, want a JSON object",
		good + `,"Tokens":[]}`:             `unknown field "Tokens"`,
		good + `,"tokens":[]}`:             "an object repeats a key",
		good + `,"cache_salt":"\ud800"}`:   "a string holds a lone surrogate",
		good + ",\"cache_salt\":\"\xff\"}": "a string is not valid UTF-8",
		good + `} {}`:                      "not valid JSON",
		`{}`:                               "scheme is missing: want sha256, sha256_cbor, xxhash or xxhash_cbor",
		strings.Replace(good, "sha256", "md5", 1) + "}":                               `scheme: hash algorithm "md5": want sha256, sha256_cbor, xxhash or xxhash_cbor`,
		strings.Replace(good, `"sha256"`, "1", 1) + "}":                               "scheme is an integer, want a string",
		strings.Replace(good, "tagged", "new", 1) + "}":                               `generation "new": want tagged or untagged`,
		strings.Replace(good, `"tagged"`, "null", 1) + "}":                            "generation is missing: want tagged or untagged",
		strings.Replace(good, "null", "42", 1) + "}":                                  "seed is an integer, want a string",
		strings.Replace(good, ":2,", ":0,", 1) + "}":                                  "block_size is 0, want 1 to 2147483647",
		strings.Replace(good, ":2,", ":-16,", 1) + "}":                                "block_size is -16, want 1 to 2147483647",
		strings.Replace(good, ":2,", ":2.0,", 1) + "}":                                "block_size is a fraction, want a positive integer",
		strings.Replace(good, ":2,", ":true,", 1) + "}":                               "block_size is a boolean, want a positive integer",
		strings.Replace(good, ":2,", ":null,", 1) + "}":                               "block_size is missing: want a positive integer",
		strings.Replace(good, "[1,2,3]", "null", 1) + "}":                             "tokens is missing: want a list of token ids",
		strings.Replace(good, "[1,2,3]", `"123"`, 1) + "}":                            "tokens is a string, want a list of token ids",
		strings.Replace(good, "[1,2,3]", "[1,-2]", 1) + "}":                           "tokens[1] is not between 0 and 4294967295",
		strings.Replace(good, "[1,2,3]", "[4294967296]", 1) + "}":                     "tokens[0] is not between 0 and 4294967295",
		strings.Replace(good, "[1,2,3]", "[1,1e3]", 1) + "}":                          "tokens[1] is a fraction, want an integer",
		strings.Replace(good, "[1,2,3]", "[123456789012345678901234567890]", 1) + "}": "tokens[0] is not between 0 and 4294967295",
		good + `,"cache_salt":5}`:                                                     "cache_salt is an integer, want a string",
		good + `,"lora":"l"}`:                                                         "lora is a string, want a list of the adapter's name and path",
		good + `,"lora":["l"]}`:                                                       "lora is a list of 1, want a list of the adapter's name and path",
		good + `,"lora":["l",1]}`:                                                     "lora holds a string and an integer, want two strings: name and path",
		good + `,"mm":{}}`:                                                            "mm is an object, want a list of [id, offset, length]",
		good + `,"mm":[["a",0,1],["a",0]]}`:                                           "mm[1] is a list of 2, want [id, offset, length]",
		good + `,"mm":[[7,0,1]]}`:                                                     "mm[0] has an integer for its id, want a string",
		good + `,"mm":[["a",-1,1]]}`:                                                  "mm[0] has an offset that is no integer from 0 to 1073741823",
		good + `,"mm":[["a",0,0]]}`:                                                   "mm[0] has a length that is no integer from 1 to 1073741823",
		strings.Replace(good, "sha256", "xxhash", 1) + "}":                            "seed is null: vLLM's xxhash in its tagged generation then starts from a random value, so there is nothing to compute",
	} {
		var out bytes.Buffer
		err := Run(strings.NewReader(good+"}\n\n"+in+"\n"+good+"}"), &out)
		if !errors.Is(err, ErrBadLine) {
			t.Errorf("%s: %v, want ErrBadLine", in, err)
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if len(lines) != 3 || lines[0] != lines[2] || !strings.HasPrefix(lines[0], `{"hashes":["`) {
			t.Errorf("%s: %q, want the good lines answered", in, lines)
			continue
		}
		var got struct {
			Line  int
			Error string
		}
		if err := json.Unmarshal([]byte(lines[1]), &got); err != nil || got.Line != 3 || !strings.HasPrefix(got.Error, want) {
			t.Errorf("%s: %s (%v), want line 3 and %q", in, lines[1], err, want)
		}
	}
}

func TestNoFullBlock(t *testing.T) {
	var out bytes.Buffer
	in := strings.Replace(good, ":2,", ":4,", 1) + ",\"cache_salt\":null}\r\n"
	if err := Run(strings.NewReader(in), &out); err != nil || out.String() != "{\"hashes\":[]}\n" {
		t.Errorf("%v %s", err, out.String())
	}
}

func TestInputAndOutputErrors(t *testing.T) {
	broken := errors.New("broken")
	if err := Run(io.MultiReader(strings.NewReader(good+"}\n"), iotest.ErrReader(broken)), io.Discard); !errors.Is(err, broken) {
		t.Errorf("reading: %v", err)
	}
	if err := Run(strings.NewReader(good+"}\n"), failing{broken}); !errors.Is(err, broken) {
		t.Errorf("writing: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// TestAnswersAtOnce: a program on the other side of a pipe gets its answer before
// it sends the next line.
func TestAnswersAtOnce(t *testing.T) {
	inRead, in := io.Pipe()
	out, outWrite := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- Run(inRead, outWrite) }()
	for range 3 {
		if _, err := io.WriteString(in, good+"}\n"); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 1<<10)
		if n, err := out.Read(buf); err != nil || !bytes.HasPrefix(buf[:n], []byte(`{"hashes":`)) {
			t.Fatalf("%v %s", err, buf[:n])
		}
	}
	in.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestLongLine(t *testing.T) {
	var out bytes.Buffer
	long := io.MultiReader(io.LimitReader(spaces{}, jsonlines.MaxLine+1), strings.NewReader("\n"+good+"}\n"))
	if err := Run(long, &out); !errors.Is(err, ErrBadLine) {
		t.Error(err)
	}
	if got := out.String(); !strings.HasPrefix(got, `{"line":1,"error":"longer than 67108864 bytes"}`+"\n{\"hashes\":") {
		t.Errorf("%.100s", got)
	}
}

type spaces struct{}

func (spaces) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

// FuzzLine: any line gets exactly one answer, and that answer is JSON.
func FuzzLine(f *testing.F) {
	f.Add([]byte(good + `,"lora":["l","p"],"cache_salt":"s","mm":[["a",1,1]]}`))
	f.Add([]byte(`{"scheme":"xxhash_cbor","generation":"untagged","seed":"7","block_size":1,"tokens":[0,4294967295]}`))
	f.Add([]byte(`{"scheme":`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if bytes.ContainsRune(line, '\n') || len(bytes.TrimSpace(line)) == 0 {
			return
		}
		var out bytes.Buffer
		err := Run(bytes.NewReader(line), &out)
		if err != nil && !errors.Is(err, ErrBadLine) {
			t.Fatal(err)
		}
		var answer struct {
			Hashes []string
			Line   int
			Error  string
		}
		if bytes.Count(out.Bytes(), []byte("\n")) != 1 || json.Unmarshal(out.Bytes(), &answer) != nil {
			t.Fatalf("answer %q", out.Bytes())
		}
		if (err != nil) != (answer.Error != "") || (err == nil) != (answer.Hashes != nil) {
			t.Fatalf("%v, but answer %q", err, out.Bytes())
		}
	})
}
