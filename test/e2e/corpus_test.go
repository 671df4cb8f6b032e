package e2e

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// oddValues are JSON values that a careless proxy rewrites when it decodes and
// encodes: integers beyond 2^53, numbers in odd notations, escapes that have a
// shorter form, NaN, and things that are not JSON at all.
var oddValues = []string{
	`9223372036854775807`, `-9223372036854775808`, `12345678901234567890123`, `1e400`, `-0.0`, `1E+2`, `0.10`, `5e-324`,
	`"\u003c\u0026\/"`, `"<&>"`, `"\ud83d\ude00"`, `"\ud800"`, `"\u0000"`, "\"\xff\xfe\xc3\"", `"é\u00e9"`, `NaN`, `Infinity`,
	`[]`, `{}`, `{"b":1,"a":2,"b":3}`, `[1 , 2,	3]`, `null`, `true`, `""`, "\"\u2028\"", `"\t\n"`,
}

var oddKeys = []string{"seed", "zeta", "alpha", "a", "a", "temperature", "stop", "", "\\u0061", "user", "logit_bias"}

// oddBodies have been changed by other routers, or were never JSON.
var oddBodies = []string{
	`{"seed":9223372036854775807,"b":1,"a":2,"model":"sim","messages":[{"role":"user","content":"<&>\u003c\/"}],"x":1e400,"y":-0.0}`,
	`{"model":"sim","model":"sim","messages":[]}`,
	"{\"model\":\"sim\",\"messages\":[{\"role\":\"user\",\"content\":\"\xff\xfe\"}]}",
	`{"model":"sim","messages":[{"role":"user","content":"\ud800"}]}`,
	" \n\t{\"model\" : \"sim\" , \"prompt\":[1,2,3]} \r\n",
	"not json at all", "", "[]", "\x00",
}

// corpus returns n bodies: the odd ones, and chat completions made from seed with
// odd members in any order and spacing, some cut short or damaged.
func corpus(seed uint64, n int) [][]byte {
	rng := rand.New(rand.NewPCG(seed, 7))
	var out [][]byte
	for _, body := range oddBodies {
		out = append(out, []byte(body))
	}
	for len(out) < n {
		out = append(out, oddBody(rng))
	}
	return out
}

func oddBody(rng *rand.Rand) []byte {
	spaces := []string{"", "", " ", "\n", "\t ", "\r\n"}
	space := func() string { return spaces[rng.IntN(len(spaces))] }
	members := []string{
		`"model":` + space() + `"sim"`,
		fmt.Sprintf(`"messages":%s[{"role":"user","content":%s}]`, space(), strconv.Quote(strings.Repeat("some words ", 1+rng.IntN(200)))),
	}
	for range rng.IntN(6) {
		members = append(members, fmt.Sprintf("%q:%s%s", oddKeys[rng.IntN(len(oddKeys))], space(), oddValues[rng.IntN(len(oddValues))]))
	}
	rng.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	var b strings.Builder
	b.WriteString(space() + "{")
	for i, m := range members {
		if i > 0 {
			b.WriteString(space() + "," + space())
		}
		b.WriteString(m)
	}
	b.WriteString(space() + "}" + space())
	body := []byte(b.String())
	switch rng.IntN(8) {
	case 0:
		body = body[:rng.IntN(len(body))]
	case 1:
		body[rng.IntN(len(body))] = byte(rng.IntN(256))
	case 2:
		body = append(body, body...)
	}
	return body
}
