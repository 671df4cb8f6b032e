package testenv

import (
	"math/rand/v2"
	"strconv"
	"strings"
)

// Tokens returns n token ids of a prompt, by a seed, in the form of a JSON
// list.
func Tokens(seed uint64, n int) string {
	rnd := rand.New(rand.NewPCG(seed, 1))
	ids := make([]string, n)
	for i := range ids {
		ids[i] = strconv.Itoa(10 + rnd.IntN(30_000))
	}
	return strings.Join(ids, ",")
}
