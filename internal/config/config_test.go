package config

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"warmroute/render/testkit/must"
)

type server struct {
	Address string        `yaml:"address"`
	Weight  int           `yaml:"weight,omitempty"`
	Timeout time.Duration `yaml:"timeout"`
}

type fleet struct {
	Servers []server `yaml:"servers"`
}

func (f fleet) Validate() error {
	var errs []error
	for i, s := range f.Servers {
		if !strings.Contains(s.Address, ":") {
			errs = append(errs, fmt.Errorf("servers[%d].address: %q has no port", i, s.Address))
		}
	}
	return errors.Join(errs...)
}

type common struct {
	Level string `yaml:"level"`
}

func (c *common) Validate() error {
	if c.Level == "loud" {
		return errors.New(`level: "loud" is not a level`)
	}
	return nil
}

type settings struct {
	Fleet   fleet             `yaml:"fleet"`
	Log     *common           `yaml:"log,omitempty"`
	Labels  map[string]string `yaml:"labels"`
	Bind    netip.AddrPort    `yaml:"bind"`
	Ratio   float64           `yaml:"ratio"`
	On      bool              `yaml:"on"`
	Byte    uint8             `yaml:"byte"`
	Wait    time.Duration     `yaml:"wait"`
	Options common            `yaml:",inline"`
}

func (s settings) Validate() error {
	if s.On && s.Ratio == 0 {
		return errors.New("ratio: must be above 0 when on is set")
	}
	return nil
}

func defaults() settings {
	return settings{Wait: 50 * time.Millisecond, Bind: netip.MustParseAddrPort("127.0.0.1:9"), Fleet: fleet{Servers: []server{{Address: "a:1"}}}}
}

func env(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func TestParseOverDefaults(t *testing.T) {
	_, err := Parse("f", []byte(`
fleet:
  servers:
  - {address: "${HOST}:80", timeout: 1m, weight: "${W}"}
  - {address: "${MISSING:-x:2}", timeout: 0}
labels: {price: "$5 $${HOST}"}
byte: ${W}
bind: "[::1]:70"
log: {level: quiet}
`), defaults(), env("HOST", "ten: {x", "W", "7"))
	if err == nil || !strings.Contains(err.Error(), `f:4: fleet.servers[0].weight: "${W}" is not a whole number of 64 bits`) {
		t.Fatalf("a quoted variable is a string: %v", err)
	}
	got, err := Parse("f", []byte(`
fleet:
  servers:
  - {address: "${HOST}:80", timeout: 1m, weight: $W}
`), defaults(), env("HOST", "ten"))
	if err == nil {
		t.Fatalf("only ${NAME} is expanded, got %+v", got)
	}
	got = must.Get(Parse("f", []byte(`
fleet:
  servers:
  - {address: "${HOST}:80", timeout: 1m, weight: 3}
  - {address: "${MISSING:-x:2}", timeout: 0}
labels: {price: "$5 $${HOST}"}
byte: ${W}
bind: "[::1]:70"
log: {level: quiet}
`), defaults(), env("HOST", "ten: {x", "W", "7")))(t)
	want := settings{
		Fleet:  fleet{Servers: []server{{"ten: {x:80", 3, time.Minute}, {"x:2", 0, 0}}},
		Labels: map[string]string{"price": "$5 ${HOST}"}, Byte: 7, Bind: netip.MustParseAddrPort("[::1]:70"),
		Log: &common{"quiet"}, Wait: 50 * time.Millisecond,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestEmptyFiles: fields without a value have their defaults, but a file without
// content was cut off.
func TestEmptyFiles(t *testing.T) {
	for doc, want := range map[string]string{"{}\n": "", "fleet:\nwait: ~\n": "", "": "f:1: the file is empty", "# nothing\n": "f:1: the file is empty", "---\n": "f:1: the file is empty", "null\n": "f:1: the file is empty"} {
		got, err := Parse("f", []byte(doc), defaults(), env())
		switch {
		case want == "" && (err != nil || !reflect.DeepEqual(got, defaults())):
			t.Errorf("%q: %+v, %v", doc, got, err)
		case want != "" && (err == nil || err.Error() != want):
			t.Errorf("%q: %v, want %s", doc, err, want)
		}
	}
}

// Every problem is reported at once, each in a sentence with path and value.
func TestParseReportsEverything(t *testing.T) {
	_, err := Parse("f", []byte(`fleet:
  servers:
  - {address: "10.0.0.1", timeout: 5}
  - {adress: "10.0.0.1:1", timeout: soon}
  servrs: []
labels: [a]
bind: nowhere
ratio: much
on: true
byte: 300
wait: [1]
level: loud
level: quiet
log: {level: "${LEVEL}"}
other: "${}"
`), defaults(), env())
	if err == nil {
		t.Fatal("no error")
	}
	want := []string{
		`f:3: fleet.servers[0].timeout: "5" has no unit; a duration is written like "50ms"`,
		`f:3: fleet.servers[0].address: "10.0.0.1" has no port`,
		`f:4: fleet.servers[1].adress: is not a known field; did you mean "address"?`,
		`f:4: fleet.servers[1].timeout: "soon" is not a duration like "50ms"`,
		`f:4: fleet.servers[1].address: "" has no port`,
		`f:5: fleet.servrs: is not a known field; did you mean "servers"?`,
		`f:6: labels: a list is not a mapping of fields`,
		`f:7: bind: "nowhere": not an ip:port`,
		`f:8: ratio: "much" is not a number`,
		`f:8: ratio: must be above 0 when on is set`,
		`f:10: byte: "300" is not a whole number ≥ 0 of 8 bits`,
		`f:11: wait: a list is not a duration`,
		`f:12: level: "loud" is not a level`,
		`f:13: level: is given more than once`,
		`f:14: log.level: the environment variable LEVEL is not set`,
		`f:15: other: is not a known field; the fields are bind, byte, fleet, labels, level, log, on, ratio, wait`,
	}
	if got := strings.Split(err.Error(), "\n"); !reflect.DeepEqual(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestParsePrefixesNestedValidators(t *testing.T) {
	_, err := Parse("f", []byte("log: {level: loud}\nlevel: loud\n"), defaults(), env())
	want := "f:1: log.level: \"loud\" is not a level\nf:2: level: \"loud\" is not a level"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestParseAnchorsAndMerge(t *testing.T) {
	got, err := Parse("f", []byte(`
fleet:
  servers:
  - &one {address: "a:1", timeout: 1s}
  - {<<: *one, weight: 2}
  - *one
`), defaults(), env())
	if err != nil || len(got.Fleet.Servers) != 3 || got.Fleet.Servers[1] != (server{"a:1", 2, time.Second}) {
		t.Errorf("%+v, %v", got.Fleet, err)
	}
	if _, err := Parse("f", []byte("fleet:\n  servers:\n  - &one {address: 'a:1', tmeout: 1s}\n  - {<<: *one}\n"), defaults(), env()); err == nil ||
		!strings.Contains(err.Error(), `fleet.servers[0].tmeout: is not a known field`) {
		t.Errorf("a merged unknown key: %v", err)
	}
}

// A small file cannot expand into endless work.
func TestParseAliasBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString("labels: {k: v}\nfleet:\n  servers:\n  - &a0 {address: 'a:1', timeout: 1s}\nx: \n")
	b.WriteString(" - &b0 [1,1,1,1,1,1,1,1,1]\n")
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&b, " - &b%d [", i)
		for range 9 {
			fmt.Fprintf(&b, "*b%d,", i-1)
		}
		b.WriteString("]\n")
	}
	type any2 struct {
		X [][][][][][][][][][][][]int `yaml:"x"`
	}
	start := time.Now()
	if _, err := Parse("f", []byte(b.String()), any2{}, env()); err == nil {
		t.Error("accepted")
	}
	if d := time.Since(start); d > time.Minute { // 9^12 numbers take hours
		t.Errorf("took %v", d)
	}
}

func TestPrintRoundTrip(t *testing.T) {
	v := defaults()
	v.Labels = map[string]string{"a": "${HOME} $$ ${", "b": "yes", "c": "12"}
	out := must.Get(Print(v))(t)
	if !strings.Contains(string(out), "wait: 50ms") {
		t.Errorf("durations print with their unit:\n%s", out)
	}
	back, err := Parse("f", out, settings{}, env())
	if err != nil || !reflect.DeepEqual(back, v) {
		t.Errorf("got %+v, %v from\n%s", back, err, out)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "c.yaml")
	if _, err := Load(path, defaults); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	pipe := filepath.Join(dir, "pipe")
	must.Do(t, syscall.Mkfifo(pipe, 0o600))
	for _, path := range []string{dir, pipe} {
		if _, err := Load(path, defaults); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: %v", path, err)
		}
	}
	must.Do(t, os.WriteFile(path, make([]byte, maxFile+1), 0o600))
	if _, err := Load(path, defaults); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a huge file: %v", err)
	}
	t.Setenv("WARMROUTE_TEST_RATIO", "0.5")
	must.Do(t, os.WriteFile(path, []byte("ratio: ${WARMROUTE_TEST_RATIO}\n"), 0o600))
	if got, err := Load(path, defaults); err != nil || got.Ratio != 0.5 {
		t.Errorf("%+v, %v", got, err)
	}
}

// Whatever Parse accepts, Print writes back to the same value.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "fleet: {servers: [{address: 'a:1', timeout: 5s}]}", "a: &x [*x]", "labels: {<<: {a: b}}", "wait: ${X:-1s}", "byte: 0x10\non: yes", "labels: {a: '$${b}'}", "log: !!str x"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := Parse("f", data, settings{}, env("X", "2s"))
		if err != nil {
			return
		}
		out := must.Get(Print(v))(t)
		back, err := Parse("f", out, settings{}, env())
		if err != nil {
			t.Fatalf("%v from\n%s", err, out)
		}
		again, _ := Print(back)
		if string(again) != string(out) {
			t.Fatalf("%s\nthen\n%s", out, again)
		}
	})
}
