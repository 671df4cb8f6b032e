//go:build vllm

package render_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"warmroute/render"
	"warmroute/render/testkit/chattest"
	"warmroute/render/testkit/checkout"
)

var mistralCount = flag.Int("mistral", 500, "random conversations for each of Mistral's tokenizers")

// TestMistralAgainstVLLM compares random conversations with vLLM's own code and
// mistral-common: the same ids, an error where there is one, or a refusal.
func TestMistralAgainstVLLM(t *testing.T) {
	cases := []struct {
		version       int
		sentencepiece bool
	}{{1, true}, {2, true}, {3, true}, {7, true}, {3, false}, {7, false}, {11, false}, {13, false}, {15, false}}
	args := []string{filepath.Join(checkout.Root(), "render", "testkit", "oracle", "mistral_fuzz.py"), fmt.Sprint(*mistralCount), "7"}
	var folders []string
	for _, c := range cases {
		folders = append(folders, chattest.MistralFolder(t, c.version, c.sentencepiece))
	}
	// One process for all: it imports vLLM once.
	cmd := exec.Command(filepath.Join(checkout.Root(), ".cache", "vllm", "0.32.0", "bin", "python"), append(args, folders...)...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("scripts/install-vllm.sh 0.32.0 installs what this needs: %v\n%s", err, said)
	}
	for i, c := range cases {
		t.Run(fmt.Sprint(c.version, c.sentencepiece), func(t *testing.T) {
			compareMistral(t, folders[i], filepath.Join(folders[i], "vectors"))
		})
	}
}

func compareMistral(t *testing.T, dir, vectors string) {
	t.Helper()
	r := server(t, dir, render.Flags{}, "0.32.0", nil)
	f, err := os.Open(vectors)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	equal, refused, all := 0, 0, 0
	for lines.Scan() {
		var v struct {
			Route, Error string
			Request      json.RawMessage
			IDs          []uint32
		}
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		all++
		ids, err := r.Tokenize(v.Route, v.Request)
		var refusal *render.Refusal
		switch {
		case errors.As(err, &refusal):
			refused++
		case (err != nil) != (v.Error != ""), err == nil && (len(ids) != 1 || !slices.Equal(ids[0], v.IDs)):
			t.Errorf("error %v, vLLM %q: %s", err, v.Error, v.Request)
		case err == nil:
			equal++
		}
	}
	t.Logf("%d conversations, %d with equal ids, %d refused", all, equal, refused)
	if lines.Err() != nil || all < *mistralCount*9/10 || equal < all/4 || refused > all/50 {
		t.Errorf("%d conversations, %d equal, %d refused, %v", all, equal, refused, lines.Err())
	}
}
