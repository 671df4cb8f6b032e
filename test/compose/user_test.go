package compose

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // git's names of files
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// user is the user of the image, by number.
const user = 65532

// TestTheRouterFetchesAsItsUser: with the example's environment, and a folder like the
// example's volume, the router computes ids in process as the user of its image, which has
// no home. Without the volume it says what is wrong.
func TestTheRouterFetchesAsItsUser(t *testing.T) {
	project := load(t, "compose.yaml")
	service, err := project.GetService("warmroute")
	if err != nil {
		t.Fatal(err)
	}
	home := *service.Environment["HF_HOME"]
	mounted := false
	for _, v := range service.Volumes {
		mounted = mounted || v.Type == "volume" && v.Target == home && !v.ReadOnly
	}
	image, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	owned := fmt.Sprintf("COPY --from=build --chown=%d:%d /cache/ %s/\n", user, user, filepath.Dir(home))
	for _, line := range []string{"RUN mkdir -p /cache/" + filepath.Base(home) + "\n", owned, fmt.Sprintf("USER %d:%d\n", user, user)} {
		if !mounted || !strings.Contains(string(image), line) {
			t.Fatalf("HF_HOME is %s, mounted as a volume: %v; the Dockerfile must have %q, so that the volume belongs to its user", home, mounted, line)
		}
	}
	folder := shared(t)
	router, sim := build(t, folder, ".", "extproc"), build(t, folder, "lab", "vllmsim")
	files, replica := filepath.Join(folder, "model"), address(t)
	start(t, exec.Command(sim, "-listen", replica, "-events", address(t), "-model", "m", "-root", "own/model", "-write-model", files))
	endpoint := hub(t, files)

	volume := filepath.Join(folder, "volume")
	if err := os.Mkdir(volume, 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		if err := os.Chown(volume, user, user); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"HOME=/", "HF_ENDPOINT=" + endpoint} // a container's user without a name has this home
	for name, value := range service.Environment {
		if value != nil && name != "HF_HOME" {
			env = append(env, name+"="+*value)
		}
	}
	if len(service.Secrets) != 1 {
		t.Fatalf("secrets %+v, want the admin token", service.Secrets)
	}
	token := project.Secrets[service.Secrets[0].Source].Content
	if err := os.WriteFile(filepath.Join(folder, "token"), []byte(token), 0o444); err != nil { //nolint:gosec // another user reads it
		t.Fatal(err)
	}
	t.Run("with the volume", func(t *testing.T) {
		at := serve(t, folder, router, replica, append(slices.Clone(env), "HF_HOME="+volume))
		within(t, "ids are computed in process", func() (string, bool) {
			said := ask(t, "POST", "http://"+at.admin+"/debug/explain", token, `{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
			var answer struct {
				Decision struct {
					Source string `json:"token_source"`
				}
			}
			return said, json.Unmarshal([]byte(said), &answer) == nil && answer.Decision.Source == "in_process"
		})
	})
	t.Run("without", func(t *testing.T) {
		at := serve(t, folder, router, replica, env)
		within(t, "a note", func() (string, bool) {
			said := ask(t, "GET", "http://"+at.health+"/readyz", "", "")
			return said, strings.Contains(said, `note: tokens of model "m": `) && strings.Contains(said, "mkdir /.cache: ") && strings.Contains(said, "set HF_HOME to a folder that the router can write")
		})
	})
}

// shared returns a folder that every user may read.
func shared(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for _, d := range []string{folder, filepath.Dir(folder)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// build compiles a command of one of the project's modules into folder.
func build(t *testing.T, folder, module, name string) string {
	t.Helper()
	program := filepath.Join(folder, name)
	cmd := exec.Command("go", "build", "-o", program, "./cmd/"+name)
	cmd.Dir = filepath.Join("../..", module)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return program
}

// address returns an address of the loopback that is free now.
func address(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start runs a program until the test ends, and logs its output if the test fails.
func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s:\n%s", filepath.Base(cmd.Path), out.String())
		}
	})
}

// hub serves the files of a folder as the model own/model.
func hub(t *testing.T, files string) (endpoint string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := os.ReadFile(filepath.Join(files, filepath.Base(r.URL.Path)))
		if err != nil || !strings.HasPrefix(r.URL.Path, "/own/model/resolve/") {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("X-Repo-Commit", strings.Repeat("0", 40))
		w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha1.Sum([]byte(fmt.Sprintf("blob %d\x00%s", len(text), text))))) //nolint:gosec // as above
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// ports are where a router answers.
type ports struct{ health, admin string }

// serve runs the router as the image's user, with the example's configuration at other
// addresses and this environment alone.
func serve(t *testing.T, folder, router, replica string, env []string) ports {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "warmroute.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	at := ports{address(t), address(t)}
	_, port, _ := net.SplitHostPort(replica)
	moved := strings.NewReplacer("0.0.0.0:9002", address(t), "0.0.0.0:9006", at.health, "0.0.0.0:9090", at.admin, "vllm:8000", "localhost:"+port, "/run/secrets/admin-token", filepath.Join(folder, "token")).Replace(string(text))
	file := filepath.Join(folder, "warmroute.yaml")
	if err := os.WriteFile(file, []byte(moved+"xds: {listen: \"\"}\nindex_service: {listen: \"\"}\n"), 0o644); err != nil { //nolint:gosec // another user reads it
		t.Fatal(err)
	}
	cmd := exec.Command(router, "serve", "-config", file)
	cmd.Env, cmd.Dir = env, "/"
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	}
	start(t, cmd)
	return at
}

// ask returns a page, or the error.
func ask(t *testing.T, method, url, token, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(resp.Body); err != nil {
		return err.Error()
	}
	return text.String()
}

// within fails the test if ok is not reported within a minute, with what was said last.
func within(t *testing.T, what string, ok func() (said string, is bool)) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		said, is := ok()
		if is {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s; the last answer: %s", what, said)
		}
	}
}
