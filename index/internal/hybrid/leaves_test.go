package hybrid

import (
	"slices"
	"testing"
)

// TestLeaves: the places that prompts leave in caches of several kinds, in tokens. vLLM
// then hits them, as its captures show (TestWhatIsOnItsWayIsHit).
func TestLeaves(t *testing.T) {
	full, window := Group{Index: 0, Kind: Full, Spec: "f", Block: 16}, Group{Index: 1, Kind: Window, Spec: "w", Block: 16, Window: 128}
	mamba := Group{Index: 1, Kind: Mamba, Spec: "m", Block: 16}
	wide := Group{Index: 2, Kind: Window, Spec: "w", Block: 32, Window: 256}
	chunks := Group{Index: 1, Kind: Chunked, Spec: "c", Block: 16, Chunk: 256}
	for _, c := range []struct {
		name   string
		groups []Group
		rule   Rule
		a      Assumed
		p      InFlight
		want   []Places
	}{
		{"a short prompt in a window", []Group{full, window}, Rule032, Assumed{}, InFlight{Tokens: 80}, []Places{{16, 80, 16}}},
		{"a long one", []Group{full, window}, Rule032, Assumed{}, InFlight{Tokens: 800}, []Places{{800, 800, 16}}},
		{"a hit near its end", []Group{full, window}, Rule032, Assumed{}, InFlight{Tokens: 800, Hit: 704, Full: 704}, []Places{{720, 800, 16}}},
		{"a branch", []Group{full, window}, Rule032, Assumed{}, InFlight{Tokens: 800, Full: 400}, []Places{{400, 400, 16}, {800, 800, 16}}},
		{"a branch in a window", []Group{full, window}, Rule032, Assumed{}, InFlight{Tokens: 800, Full: 96}, []Places{{16, 96, 16}, {800, 800, 16}}},
		{"a branch of Mamba", []Group{full, mamba}, Rule032, Assumed{}, InFlight{Tokens: 80, Full: 48}, []Places{{48, 48, 16}, {80, 80, 16}}},
		{"all kept", []Group{full, window}, Rule032, Assumed{}, InFlight{Tokens: 800, Hit: 96, Retention: RetainAll}, []Places{{112, 800, 16}}},
		{"all kept but Mamba", []Group{full, mamba}, Rule032, Assumed{}, InFlight{Tokens: 80, Retention: RetainAll}, []Places{{80, 80, 16}}},
		{"each 256", []Group{full, window}, Rule032, Assumed{}, InFlight{Tokens: 900, Retention: 256}, []Places{{256, 256, 16}, {256, 768, 256}, {784, 896, 16}}},
		{"each 256, and a branch", []Group{full, window}, Rule032, Assumed{}, InFlight{Tokens: 900, Full: 320, Retention: 256}, []Places{{256, 256, 16}, {256, 768, 256}, {320, 320, 16}, {784, 896, 16}}},
		{"each 64", []Group{full, window}, Rule032, Assumed{}, InFlight{Tokens: 900, Retention: 64}, []Places{{16, 896, 16}}},
		{"chunks", []Group{full, chunks}, Rule032, Assumed{}, InFlight{Tokens: 900, Hit: 32}, []Places{{48, 896, 16}}},
		{"unequal windows", []Group{full, window, wide}, Rule032, Assumed{}, InFlight{Tokens: 160}, []Places{{160, 160, 32}}},
		{"a draft model", []Group{full, window}, Rule032, Assumed{Eagle: 3}, InFlight{Tokens: 808, Full: 400}, []Places{{384, 384, 16}, {784, 784, 16}}},
		{"replayed", []Group{full, window}, Rule032, Assumed{Replay: 40}, InFlight{Tokens: 80}, []Places{{48, 80, 16}}},
		{"nothing but the end is known", []Group{full, window}, Rule032, Assumed{}, InFlight{Tokens: 80, Alone: true}, []Places{{80, 80, 16}}},
		{"too short", []Group{full, window}, Rule032, Assumed{}, InFlight{Tokens: 15}, nil},
	} {
		g := NewLayout(c.rule, c.groups, 0)
		if got := g.Leaves(nil, c.a, c.p); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
