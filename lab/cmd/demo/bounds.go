package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"warmroute/lab/stage"
	"warmroute/lab/vllmsim"
)

// bounds returns the best possible hit rates for the requests of r, one by one in the
// order in which the client sent them: from one cache as large as all replicas' together,
// and from one that never evicts. A pass can differ from them by a hundredth: while a
// replica generates an answer, no cache has the answer.
func bounds(ctx context.Context, r *report, f stage.Fleet, answer int, tokenizer string) (pooled, infinite float64, err error) {
	all := slices.Clone(r.exchanges)
	slices.SortFunc(all, func(a, b exchange) int { return cmp.Compare(a.sent, b.sent) })
	prompts := make([][]uint32, len(all))
	total := 0
	for i, e := range all {
		if prompts[i], err = tokenize(ctx, tokenizer, e.messages); err != nil {
			return 0, 0, fmt.Errorf("tokenize for the bounds: %w", err)
		}
		total += len(prompts[i]) + answer
	}
	// One block of each pool is vLLM's null block, and the last of each sequence may be partial.
	everything := total/f.BlockSize + len(all) + 1
	if pooled, err = ideal(f, f.Replicas*(f.Blocks-1)+1, answer, prompts); err != nil {
		return 0, 0, err
	}
	infinite, err = ideal(f, everything, answer, prompts)
	return pooled, infinite, err
}

func ideal(f stage.Fleet, blocks, answer int, prompts [][]uint32) (float64, error) {
	c, err := vllmsim.NewIdeal(vllmsim.Options{BlockSize: f.BlockSize, Seed: f.Seed, MaxModelLen: f.MaxModelLen}, blocks)
	if err != nil {
		return 0, err
	}
	queries, hits := 0, 0
	for _, p := range prompts {
		hit, err := c.Serve(p, answer)
		if err != nil {
			return 0, err
		}
		queries += len(p)
		hits += hit
	}
	if queries == 0 {
		return 0, nil
	}
	return float64(hits) / float64(queries), nil
}

// tokenize requests a conversation's tokens from a replica.
func tokenize(ctx context.Context, addr string, msgs []message) ([]uint32, error) {
	body, err := json.Marshal(map[string]any{"messages": msgs})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/tokenize", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", resp.StatusCode)
	}
	var out struct {
		Tokens []uint32 `json:"tokens"`
	}
	err = json.NewDecoder(resp.Body).Decode(&out)
	return out.Tokens, err
}
