package config

import (
	"slices"
	"testing"
)

func TestDifferences(t *testing.T) {
	a, b := defaults(), defaults()
	b.Wait, b.Fleet.Servers = 1, nil
	b.Labels = map[string]string{"a": "1"}
	b.Log = &common{"x"}
	got, err := Differences(a, b)
	if err != nil || !slices.Equal(got, []string{"fleet.servers", "labels.a", "log", "wait"}) {
		t.Errorf("%v, %v", got, err)
	}
	if same, err := Differences(a, defaults()); err != nil || len(same) > 0 {
		t.Errorf("%v, %v", same, err)
	}
}
