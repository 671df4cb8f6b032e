package config

import (
	"testing"
)

// guessed has fields that are easily mistaken.
type guessed struct {
	Address   string         `yaml:"address"`
	TokenFile string         `yaml:"token_file"`
	TokenEnv  string         `yaml:"token_env"`
	Policy    guessedPolicy  `yaml:"policy"`
	Body      int            `yaml:"body" unit:"bytes"`
	Small     int32          `yaml:"small" unit:"bytes"`
	Store     int            `yaml:"store" unit:"MiB"`
	Streams   int            `yaml:"streams" unit:"requests"`
	Sizes     []int          `yaml:"sizes" unit:"bytes"`
	ByName    map[string]int `yaml:"by_name" unit:"MiB"`
}

type guessedPolicy struct {
	RoutePolicy string `yaml:"route_policy"`
	Rate        int    `yaml:"rate"`
	Prices      int    `yaml:"prices"`
}

// TestMistakesAreGuessed: the sentence about an unknown field names the field that is
// meant, or all; the one about a size with a suffix says how it is written.
func TestMistakesAreGuessed(t *testing.T) {
	for text, want := range map[string]string{
		"adress: x":            `adress: is not a known field; did you mean "address"?`,
		"policy: {name: ttft}": `policy.name: is not a known field; the fields of policy are prices, rate, route_policy`,
		"rate: 1":              `rate: is not a known field; did you mean "policy.rate"?`,
		"nosuch: 1": `nosuch: is not a known field; the fields are address, body, by_name, policy, sizes, small, store, streams, token_env, ` +
			`token_file`,
		"body: 64MB":                  `body: "64MB" is not a whole number of bytes; write 67108864 for 64 MiB`,
		"body: 64 MiB":                `body: "64 MiB" is not a whole number of bytes; write 67108864 for 64 MiB`,
		"body: 2Gi":                   `body: "2Gi" is not a whole number of bytes; write 2147483648 for 2 GiB`,
		"body: 8k":                    `body: "8k" is not a whole number of bytes; write 8192 for 8 KiB`,
		"body: 999999999TB":           `body: "999999999TB" is not a whole number of 64 bits`,
		"small: 1GB":                  `small: "1GB" is not a whole number of bytes; write 1073741824 for 1 GiB`,
		"small: 2GB":                  `small: "2GB" is not a whole number of 32 bits`,
		"body: much":                  `body: "much" is not a whole number of 64 bits`,
		"body: 0.5":                   `body: "0.5" is not a whole number of 64 bits`,
		"by_name: {a: 1.0, b: 15e-1}": `by_name.b: "15e-1" is not a whole number of 64 bits`,
		"store: 4GiB":                 `store: "4GiB" is not a whole number of MiB; write 4096 for 4 GiB`,
		"store: 4k":                   `store: "4k" is not a whole number of 64 bits`,
		"streams: 8k":                 `streams: "8k" is not a whole number of 64 bits`,
		"sizes: [1, 1MB]":             `sizes[1]: "1MB" is not a whole number of bytes; write 1048576 for 1 MiB`,
		"by_name: {a: 1, b: 2G}":      `by_name.b: "2G" is not a whole number of MiB; write 2048 for 2 GiB`,
	} {
		if _, err := Parse("f", []byte(text), guessed{}, env()); err == nil || err.Error() != "f:1: "+want {
			t.Errorf("%s:\n%v, want\n%s", text, err, want)
		}
	}
}
