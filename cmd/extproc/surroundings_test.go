package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/certs/certstest"
	"warmroute/internal/cli"
	"warmroute/internal/config"
	"warmroute/render/testkit/must"
)

// put writes a file of a configuration, and returns its name.
func put(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "warmroute.yaml")
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// run executes the program, and returns what it prints.
func run(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	var b bytes.Buffer
	err = program().Run(t.Context(), args, stdio{In: strings.NewReader(""), Out: &b, Err: &b})
	return b.String(), err
}

// TestCheckFindsWhatServeFinds: files, folders and variables that the machine lacks are
// problems of `check`, with the line, all at once. The router does not start with the first
// part, for the same reasons, and starts with the second.
func TestCheckFindsWhatServeFinds(t *testing.T) {
	const fleet = "fleet: {replicas: [{address: \"10.0.0.1:8000\"}]"
	pair := certstest.New(t).Issue("name.test")
	plain := put(t, " ")
	for _, c := range []struct {
		text  string
		fatal bool
		want  []string
	}{
		{"tls: {cert_file: /no/cert, key_file: /no/key}", true,
			[]string{"tls.cert_file: open /no/cert: no such file", "tls.key_file: open /no/key: no such file"}},
		{"tls: {cert_file: " + pair.CertFile + ", key_file: " + pair.CertFile + "}", true, []string{"tls.cert_file and key_file: "}},
		{"xds: {listen: \"\"}\ntls: {self_signed: true, client_ca_file: " + plain + "}", true, []string{"tls.client_ca_file: " + plain + " holds no certificate"}},
		{"xds: {tls: {cert_file: /no/cert, key_file: " + pair.KeyFile + "}}", true, []string{"xds.tls.cert_file: open /no/cert: "}},
		{"index_service: {token_file: /no/token, tls: {self_signed: true, client_ca_file: /no/ca}}", true,
			[]string{"index_service.tls.client_ca_file: open /no/ca: ", "index_service.token_file: open /no/token: "}},
		{"admin: {token_file: /no/token}", true, []string{"admin.token_file: open /no/token: "}},
		{"admin: {token_file: " + plain + "}", true, []string{"admin.token_file: " + plain + " does not hold one token"}},
		{fleet + ", token_file: /no/token}", true, []string{"fleet.token_file: open /no/token: "}},
		{fleet + ", tls: {enabled: true, ca_file: /no/ca}}", true, []string{"fleet.tls.ca_file: open /no/ca: "}},
		{"peers: {listen: 127.0.0.1, token_file: /no/token, tls: {enabled: true, cert_file: /no/a, key_file: /no/b, ca_file: /no/c}}", true,
			[]string{"peers.token_file: open /no/token: ", "peers.tls.ca_file: open /no/c: "}},
		{"peers: {url: \"nats://127.0.0.1:1\", creds: /no/creds}", true, []string{"peers.creds: open /no/creds: "}},
		{"tracing: {endpoint: \"127.0.0.1:1\", tls: {enabled: true, ca_file: /no/ca}}", true, []string{"tracing.tls.ca_file: open /no/ca: "}},
		{"filter: {trace_file: /no/trace}", false, []string{"filter.trace_file: the folder of /no/trace: "}},
		{"filter: {trace_file: " + filepath.Dir(plain) + "}", false, []string{"filter.trace_file: " + filepath.Dir(plain) + " is not a regular file"}},
		{"filter: {trace_file: " + plain + "}", false, nil},
		{"xds: {state: " + plain + "}", false, []string{"xds.state: " + plain + " is not a folder"}},
		{"xds: {state: " + plain + "/state}", false, []string{"xds.state: files cannot be made in " + plain + "/state: "}},
		{"xds: {state: " + plain + "-new/state}", false, nil},
		{"warm_up: {peers: [\"127.0.0.1:1\"], tls: {enabled: true, ca_file: /no/ca}}", false, []string{"warm_up.tls.ca_file: open /no/ca: "}},
		{"tokens: {models: [{id: m, files: /no/model, chat_template: /no/template}]}", false,
			[]string{"tokens.models[0].chat_template: open /no/template: ", "tokens.models[0].files: \"/no/model\": "}},
	} {
		text := c.text
		if !strings.HasPrefix(text, fleet) {
			text = fleet + "}\n" + text
		}
		path := put(t, "# a file\n"+text+"\n")
		line := 1 + strings.Count(text, "\n") + 1
		var want []string
		for _, w := range c.want {
			want = append(want, fmt.Sprintf("%s:%d: %s", path, line, w))
		}
		_, err := run(t, "check", path)
		expect(t, "check: "+c.text, err, want)
		if _, err := run(t, "check", "-elsewhere", path); err != nil {
			t.Errorf("%s: on another machine: %v", c.text, err)
		}
		if !c.fatal {
			want = nil
		}
		file := &config.File[Config]{Path: path, Defaults: defaultConfig}
		loaded := must.Get(file.Load())(t)
		r, err := newRouter(loaded, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		if err == nil {
			r.ids.remote.Close()
		}
		expect(t, "serve: "+c.text, file.Locate(err), want)
	}
}

// expect compares the lines of an error by their beginnings.
func expect(t *testing.T, about string, err error, want []string) {
	t.Helper()
	var got []string
	if err != nil {
		got = strings.Split(err.Error(), "\n")
	}
	same := len(got) == len(want)
	for i := 0; same && i < len(got); i++ {
		same = strings.HasPrefix(got[i], want[i])
	}
	if !same {
		t.Errorf("%s:\n%q, want\n%q", about, got, want)
	}
}

// TestCheckMakesNothing: neither a folder nor a file that the router would make.
func TestCheckMakesNothing(t *testing.T) {
	dir := t.TempDir()
	path := put(t, "fleet: {replicas: [{address: \"10.0.0.1:8000\"}]}\nxds: {state: "+dir+"/state}\nfilter: {trace_file: "+dir+"/trace}\n")
	must.Get(run(t, "check", path))(t)
	if made, err := os.ReadDir(dir); err != nil || len(made) > 0 {
		t.Errorf("%v, %v", made, err)
	}
}

// TestConfigurationByItsName: every command that reads the file takes it alone or with
// -config, before or after flags, and one file only.
func TestConfigurationByItsName(t *testing.T) {
	good := put(t, "fleet: {replicas: [{address: \"10.0.0.1:8000\"}]}\n")
	bad := put(t, "listen: nowhere\n")
	for _, command := range []string{"serve", "check", "envoy-config"} {
		for _, args := range [][]string{{bad}, {"-config", bad}} {
			if out, err := run(t, append([]string{command}, args...)...); err == nil || !strings.HasPrefix(err.Error(), bad+":1: listen: ") {
				t.Errorf("%s %v: %v %s", command, args, err, out)
			}
		}
		for _, args := range [][]string{{"-config", good, bad}, {good, bad}, {good, "-nosuch"}} {
			if _, err := run(t, append([]string{command}, args...)...); err != cli.ErrUsage { //nolint:errorlint // nothing wraps it
				t.Errorf("%s %v: %v", command, args, err)
			}
		}
		if _, err := run(t, command); err != errNoConfig { //nolint:errorlint // nothing wraps it
			t.Errorf("%s: %v", command, err)
		}
	}
	if out, err := run(t, "envoy-config", good, "-static"); err != nil || !strings.Contains(out, "10.0.0.1") {
		t.Errorf("%v %s", err, out)
	}
}

// TestTokensThatCannotBeReadAgain: a token whose file was emptied or removed stays in force, and a
// note says so, until the file holds one again.
func TestTokensThatCannotBeReadAgain(t *testing.T) {
	files := map[string]string{}
	for _, section := range []string{"admin", "index_service", "fleet"} {
		files[section] = filepath.Join(t.TempDir(), section)
		must.Do(t, os.WriteFile(files[section], []byte("secret"), 0o600))
	}
	r, _ := startRouter(t, fmt.Sprintf("index_service: {listen: SERVICE, token_file: %q}\nfleet: {replicas: [{address: \"10.0.0.1:8000\"}], token_file: %q}\n",
		files["index_service"], files["fleet"]))
	ofAdmin := Config{Admin: AdminConfig{TokenFile: files["admin"]}}
	noted := func(section string) bool {
		return slices.ContainsFunc(slices.Concat(r.notes(), ofAdmin.unreadTokens()), func(note string) bool {
			return strings.HasPrefix(note, section+".token_file: ") && strings.HasSuffix(note, "the previous token stays in force")
		})
	}
	for section, file := range files {
		for _, step := range []struct {
			what   string
			change func() error
			want   bool
		}{
			{"there", func() error { return nil }, false},
			{"empty", func() error { return os.Truncate(file, 0) }, true},
			{"removed", func() error { return os.Remove(file) }, true},
			{"renewed", func() error { return os.WriteFile(file, []byte("another"), 0o600) }, false},
		} {
			must.Do(t, step.change())
			if got := noted(section); got != step.want {
				t.Errorf("%s: the file is %s, noted: %v", section, step.what, got)
			}
		}
	}
}
