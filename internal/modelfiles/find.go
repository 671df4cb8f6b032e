package modelfiles

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// ErrNotFound reports that a model's tokenizer is neither a folder nor in the cache.
var ErrNotFound = errors.New("not found")

// tokenizers are the files that hold a tokenizer; a model has at least one.
var tokenizers = []string{"tokenizer.json", "tekken.json",
	"tokenizer.model.v11", "tokenizer.model.v7m1", "tokenizer.model.v7", "tokenizer.model.v3", "tokenizer.model.v2", "tokenizer.model.v1"}

// settings are the other files of a model that are fetched if it has them.
var settings = []string{
	"tokenizer_config.json", "special_tokens_map.json", "config.json", "generation_config.json",
	"chat_template.jinja", "chat_template.json", "added_tokens.json", "preprocessor_config.json", "processor_config.json",
}

// The limits of a model's files: four times the largest published ones, or more.
const (
	maxTokenizer = 128 << 20
	maxSettings  = 8 << 20
	maxTemplate  = 1 << 20
)

// Limit returns the most bytes of a model's file of this name.
func Limit(name string) int64 {
	switch {
	case strings.HasSuffix(name, ".jinja"):
		return maxTemplate
	case slices.Contains(settings, name):
		return maxSettings
	}
	return maxTokenizer
}

// Hub is a Hugging Face hub and the cache of its files.
type Hub struct {
	cache    string
	endpoint string
	unsent   bool // HF_TOKEN is set and not sent, because it would be readable on the way
	offline  bool
	client   *http.Client
	meter    meter
}

// responseWait is how long a hub may take to begin an answer.
const responseWait = 30 * time.Second

// New makes a Hub of the environment's settings; getenv is os.Getenv except in
// tests.
func New(getenv func(string) string) (*Hub, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = responseWait
	h := &Hub{
		endpoint: cmp.Or(strings.TrimRight(getenv("HF_ENDPOINT"), "/"), "https://huggingface.co"),
		cache:    getenv("HF_HUB_CACHE"),
		meter:    meter{now: time.Now, most: DefaultBytes},
	}
	endpoint, err := url.Parse(h.endpoint)
	if err != nil || endpoint.Scheme != "https" && endpoint.Scheme != "http" || endpoint.Host == "" || endpoint.User != nil {
		return nil, errors.New("HF_ENDPOINT is no URL of the form https://host")
	}
	token := getenv("HF_TOKEN")
	if token != "" && !private(endpoint) {
		h.unsent, token = true, ""
	}
	h.client = &http.Client{Transport: &authorized{transport, endpoint, token}, CheckRedirect: func(_ *http.Request, via []*http.Request) error { return few(via) }}
	h.offline = slices.Contains([]string{"1", "ON", "YES", "TRUE"}, strings.ToUpper(getenv("HF_HUB_OFFLINE")))
	home, base, user := getenv("HF_HOME"), getenv("XDG_CACHE_HOME"), getenv("HOME")
	switch {
	case h.cache != "":
	case home != "":
		h.cache = filepath.Join(home, "hub")
	case base != "":
		h.cache = filepath.Join(base, "huggingface", "hub")
	case user != "":
		h.cache = filepath.Join(user, ".cache", "huggingface", "hub")
	default:
		return nil, errors.New("no folder for the Hugging Face cache: set HF_HOME, HF_HUB_CACHE or HOME")
	}
	return h, nil
}

// model is a name on a hub, with its revision.
type model struct{ name, revision string }

var (
	nameForm     = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)?$`)
	revisionForm = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_./-]*$`)
	commitForm   = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// Named reports whether ref has the form "owner/name[@revision]": such a model may
// be requested from a hub without configuration. A path, or an alias without an
// owner, does not have it.
func Named(ref string) bool {
	_, err := parseModel(ref)
	return err == nil && strings.Contains(ref, "/")
}

// Commit returns the commit of a folder of the cache, "" for any other.
func Commit(dir string) string {
	if commit := filepath.Base(dir); commitForm.MatchString(commit) && filepath.Base(filepath.Dir(dir)) == "snapshots" {
		return commit
	}
	return ""
}

// parseModel reads "name", "owner/name" or either with "@revision".
func parseModel(ref string) (model, error) {
	name, revision, ok := strings.Cut(ref, "@")
	if !ok {
		revision = "main"
	}
	if !nameForm.MatchString(name) || strings.Contains(name, "..") {
		return model{}, fmt.Errorf("model %q is neither a folder nor a name on a hub", ref)
	}
	if !revisionForm.MatchString(revision) || strings.Contains(revision, "..") {
		return model{}, fmt.Errorf("model %q has the revision %q, which no hub has", ref, revision)
	}
	return model{name, revision}, nil
}

func (h *Hub) folder(m model) string {
	return filepath.Join(h.cache, "models--"+strings.ReplaceAll(m.name, "/", "--"))
}

// hasTokenizer reports whether a folder holds a tokenizer.
func hasTokenizer(dir string) bool {
	return slices.ContainsFunc(tokenizers, func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	})
}

// Find returns the folder with ref's tokenizer without using the network:
// ref itself if it is a folder, else the snapshot in the cache of the model
// "owner/name" or "owner/name@revision". A nil Hub has no cache. The error is
// ErrNotFound if there is neither.
func (h *Hub) Find(ref string) (string, error) {
	if info, err := os.Stat(ref); err == nil && info.IsDir() {
		if !hasTokenizer(ref) {
			return "", fmt.Errorf("the folder %s has no %s: %w", ref, tokenizers[0], ErrNotFound)
		}
		return ref, nil
	}
	if h == nil {
		return "", fmt.Errorf("there is no folder %s, and no Hugging Face cache on this machine: %w", ref, ErrNotFound)
	}
	m, err := parseModel(ref)
	if err != nil {
		return "", err
	}
	commit := m.revision
	if !commitForm.MatchString(commit) {
		raw, err := os.ReadFile(filepath.Join(h.folder(m), "refs", filepath.FromSlash(m.revision)))
		if errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("the model %s is not in the Hugging Face cache %s: %w", ref, h.cache, ErrNotFound)
		}
		if err != nil {
			return "", fmt.Errorf("read the cache's revision of %s: %w", ref, err)
		}
		if commit = strings.TrimSpace(string(raw)); !commitForm.MatchString(commit) {
			return "", fmt.Errorf("the Hugging Face cache names no commit for %s", ref)
		}
	}
	dir := filepath.Join(h.folder(m), "snapshots", commit)
	if !hasTokenizer(dir) {
		return "", fmt.Errorf("the Hugging Face cache has no %s of %s: %w", tokenizers[0], ref, ErrNotFound)
	}
	return dir, nil
}
