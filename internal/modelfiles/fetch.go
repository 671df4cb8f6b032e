package modelfiles

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // git names files by it
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// tries bounds how often a download that breaks off is continued at once. The downloaded
// part is kept for the next Fetch, too.
const tries = 3

// remote is a hub's description of a file.
type remote struct {
	commit string
	etag   string
	size   int64 // -1: unknown
	limit  int64 // of the size
}

// Fetch returns the folder with ref's files, and downloads the missing ones. It only
// looks folders up, as Find does, and with HF_HUB_OFFLINE models too. It requests a
// branch again each time, so that it sees a model's update.
func (h *Hub) Fetch(ctx context.Context, ref string) (string, error) {
	if dir, err := h.Find(ref); err == nil && dir == ref {
		return dir, nil
	}
	if h.offline {
		dir, err := h.Find(ref)
		if err != nil {
			return "", fmt.Errorf("%w (HF_HUB_OFFLINE forbids to fetch it)", err)
		}
		return dir, nil
	}
	m, err := parseModel(ref)
	if err != nil {
		return "", err
	}
	if err := h.Paused(); err != nil {
		return "", fmt.Errorf("fetch %s: %w", ref, err)
	}
	commit, err := h.files(ctx, m)
	if err != nil {
		return "", fmt.Errorf("fetch %s: %w", ref, h.noted(err))
	}
	// The branch is written last: until then Find returns the old snapshot.
	if !commitForm.MatchString(m.revision) {
		path := filepath.Join(h.folder(m), "refs", filepath.FromSlash(m.revision))
		if err := replace(path, func(temporary string) error { return os.WriteFile(temporary, []byte(commit), 0o644) }); err != nil {
			return "", fmt.Errorf("note the commit of %s: %w", ref, h.noted(err))
		}
	}
	return filepath.Join(h.folder(m), "snapshots", commit), nil
}

// files makes a model's files present in the cache, all of one commit even while
// its branch moves. A model in Mistral's own format may have no tokenizer.json.
func (h *Hub) files(ctx context.Context, m model) (commit string, err error) {
	at, found := m.revision, false
	for _, file := range slices.Concat(tokenizers, settings) {
		if found && strings.HasPrefix(file, "tokenizer.model") {
			continue // the first tokenizer counts
		}
		info, err := h.file(ctx, m, at, file)
		if errors.Is(err, errAbsent) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
		at, commit = info.commit, info.commit
		found = found || slices.Contains(tokenizers, file)
	}
	if !found {
		return "", fmt.Errorf("%s: %w", tokenizers[0], errAbsent)
	}
	return commit, nil
}

var errAbsent = errors.New("the hub does not have it")

// file makes one file of a model present in the cache.
func (h *Hub) file(ctx context.Context, m model, revision, name string) (remote, error) {
	url := fmt.Sprintf("%s/%s/resolve/%s/%s", h.endpoint, m.name, strings.ReplaceAll(revision, "/", "%2F"), name)
	info, err := h.ask(ctx, url, Limit(name))
	if err != nil {
		return remote{}, err
	}
	blob := filepath.Join(h.folder(m), "blobs", info.etag)
	if _, err := os.Stat(blob); err != nil {
		if err := h.download(ctx, url, blob, info); err != nil {
			return remote{}, err
		}
	}
	link := filepath.Join(h.folder(m), "snapshots", info.commit, name)
	return info, relink(link, filepath.Join("..", "..", "blobs", info.etag))
}

var etagForm = regexp.MustCompile(`^[0-9A-Za-z._-]{1,128}$`)

// ask requests a file's commit, hash and size. A hub answers for its own files;
// for large ones it redirects, and the redirect itself has these values.
func (h *Hub) ask(ctx context.Context, url string, limit int64) (remote, error) {
	client := *h.client
	client.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if req.URL.Host != via[0].URL.Host || via[len(via)-1].Response != nil && via[len(via)-1].Response.Header.Get("X-Linked-Etag") != "" {
			return http.ErrUseLastResponse
		}
		return few(via)
	}
	resp, err := h.do(ctx, &client, http.MethodHead, url, 0)
	if err != nil {
		return remote{}, err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return remote{}, errAbsent
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		if h.unsent {
			return remote{}, fmt.Errorf("the hub answers %s: HF_TOKEN is not sent to %s, because others could read it on the way: HF_ENDPOINT must be https", resp.Status, h.endpoint)
		}
		return remote{}, fmt.Errorf("the hub answers %s: the model may need HF_TOKEN or an accepted licence", resp.Status)
	case resp.StatusCode >= 400:
		return remote{}, fmt.Errorf("the hub answers %s", resp.Status)
	}
	said := resp.Header.Get
	r := remote{commit: said("X-Repo-Commit"), size: -1, limit: limit}
	r.etag = strings.Trim(strings.TrimPrefix(cmp.Or(said("X-Linked-Etag"), said("Etag")), "W/"), `"`)
	if !commitForm.MatchString(r.commit) || !etagForm.MatchString(r.etag) || strings.HasPrefix(r.etag, ".") {
		return remote{}, errors.New("the hub names no commit or no ETag")
	}
	size := said("X-Linked-Size")
	if resp.StatusCode < 300 {
		size = cmp.Or(size, said("Content-Length"))
	}
	if size != "" {
		if r.size, err = strconv.ParseInt(size, 10, 64); err != nil || r.size > limit {
			return remote{}, fmt.Errorf("the hub says a size of %q bytes, more than %d or no number", size, limit)
		}
	}
	return r, nil
}

func (h *Hub) do(ctx context.Context, client *http.Client, method, url string, from int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "warmroute")
	req.Header.Set("Accept-Encoding", "identity") // ranges and hashes are of the file itself
	if from > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	return client.Do(req)
}

// download brings a blob into place. It continues an earlier attempt's part, one process
// at a time.
func (h *Hub) download(ctx context.Context, url, blob string, info remote) error {
	if err := os.MkdirAll(filepath.Dir(blob), 0o755); err != nil {
		return err
	}
	part, err := lockFile(blob + ".incomplete")
	if err != nil {
		return err
	}
	defer part.Close()
	if _, err := os.Stat(blob); err == nil {
		return os.Remove(part.Name()) // another download was faster
	}
	if err := h.meter.file(); err != nil {
		return errors.Join(err, os.Remove(part.Name()))
	}
	for try := 0; ; try++ {
		err = h.rest(ctx, url, part, info)
		if err == nil || final(err) || try == tries-1 || ctx.Err() != nil {
			break
		}
	}
	if err == nil {
		err = verify(part, info)
	}
	if err == nil {
		err = part.Sync()
	}
	if final(err) {
		return errors.Join(err, os.Remove(part.Name()))
	}
	if err != nil {
		return err
	}
	return os.Rename(part.Name(), blob)
}

// lockFile opens a file and locks it, again if another process has removed or renamed it
// meanwhile.
func lockFile(path string) (*os.File, error) {
	for {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
		}
		mine, err := file.Stat()
		if named, err2 := os.Stat(path); err == nil && err2 == nil && os.SameFile(mine, named) {
			return file, nil
		}
		if err := errors.Join(err, file.Close()); err != nil {
			return nil, err
		}
	}
}

// rest downloads the missing rest of part.
func (h *Hub) rest(ctx context.Context, url string, part *os.File, info remote) error {
	at, err := part.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if info.size >= 0 && at == info.size {
		return nil
	}
	if info.size >= 0 && at > info.size || at > info.limit {
		at = 0
	}
	resp, err := h.do(ctx, h.client, http.MethodGet, url, at)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		at = 0 // ranges are not supported, or none was requested
	case http.StatusPartialContent:
		if !strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", at)) {
			return fmt.Errorf("the hub sends the range %q, not from byte %d", resp.Header.Get("Content-Range"), at)
		}
	default:
		return fmt.Errorf("the hub answers %s", resp.Status)
	}
	if err := part.Truncate(at); err != nil {
		return err
	}
	if _, err := part.Seek(at, io.SeekStart); err != nil {
		return err
	}
	limit := info.limit
	if info.size >= 0 {
		limit = info.size
	}
	n, err := io.Copy(part, metered{&h.meter, io.LimitReader(resp.Body, limit+1-at)})
	if err != nil {
		return fmt.Errorf("after %d bytes: %w", at+n, err)
	}
	if at+n > limit {
		return fmt.Errorf("%w: the hub sends more than %d bytes", errRefused, limit)
	}
	if info.size >= 0 && at+n != info.size {
		return fmt.Errorf("the hub sent %d bytes of %d", at+n, info.size)
	}
	return nil
}

// verify compares the file with its ETag: a SHA-256 (64 digits) or git's hash
// of a blob (40). Other ETags are not hashes of the content.
func verify(f *os.File, info remote) error {
	var sum hash.Hash
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	switch len(info.etag) {
	case sha256.Size * 2:
		sum = sha256.New()
	case sha1.Size * 2:
		sum = sha1.New() //nolint:gosec // git names files by it
		fmt.Fprintf(sum, "blob %d\x00", size)
	default:
		return nil
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != strings.ToLower(info.etag) {
		return fmt.Errorf("%w: the file's hash is %s, the hub says %s", errRefused, got, info.etag)
	}
	return nil
}

// relink makes a symbolic link, in place of an existing file.
func relink(path, target string) error {
	if old, err := os.Readlink(path); err == nil && old == target {
		return nil
	}
	return replace(path, func(temporary string) error { return os.Symlink(target, temporary) })
}

// replace puts what write makes in place of an existing file.
func replace(path string, write func(temporary string) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temporary := fmt.Sprintf("%s.%d.tmp", path, os.Getpid())
	if err := write(temporary); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
