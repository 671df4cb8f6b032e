package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"warmroute/render/work"
)

// maxID bounds token ids; the largest published vocabularies have 2^18.
const maxID = 1 << 24

// The costs of making the parts of a tokenizer: an entry of the vocabulary, a slot of a
// table, a node of the trie of added tokens.
const (
	entrySteps = 8
	slotBytes  = 48
	nodeSteps  = 8
	nodeBytes  = 160
)

// errCrowded is the error of a file with texts chosen to collide in the hash table.
var errCrowded = errors.New("too many tokens have the same hash")

// maxFile bounds a tokenizer.json; the largest published ones are 33 MB.
const maxFile = 512 << 20

// Options select how to load a tokenizer. The zero value is right for serving.
type Options struct {
	// WordCache is the number of slots of 128 bytes that remember words, a
	// power of two; 0 means 32768, negative none.
	WordCache int
	// Class is a class of transformers 5 (Config.Classed): it keeps vocabulary, merges
	// and post-processor of the file and replaces the other parts by its own, which
	// may change ids. Empty: the file decides.
	Class string
	// Work pays for making the tokenizer; nil: nothing does.
	Work *work.Budget
}

func loadFile(path string, o Options, c Config) (*Tokenizer, error) {
	data, free, err := readAside(path)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer: %w", err)
	}
	defer free()
	t, err := parse(data, o, c)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer %s: %w", path, err)
	}
	return t, nil
}

// Load loads the tokenizer of a model folder as transformers does: its
// tokenizer.json with the special tokens of the configuration files next to it.
func Load(dir string, o Options) (*Tokenizer, error) {
	c, err := ReadConfig(dir)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer: %w", err)
	}
	return loadFile(filepath.Join(dir, "tokenizer.json"), o, c)
}

// readAside reads a file into memory outside Go's heap, so that loading a
// model does not leave the heap grown by the size of its file.
func readAside(path string) (data []byte, free func(), err error) {
	size, err := fileSize(path)
	if err != nil {
		return nil, nil, err
	}
	if size == 0 || size > maxFile {
		return nil, nil, fmt.Errorf("%s has %d bytes, not 1 to %d", path, size, maxFile)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	data, err = unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, fmt.Errorf("memory for %s: %w", path, err)
	}
	free = func() { _ = unix.Munmap(data) } // the mapping is this function's: cannot fail
	for n := 0; n < len(data); {
		m, err := f.Read(data[n:])
		n += m
		if n < len(data) && err != nil {
			free()
			return nil, nil, fmt.Errorf("read %s: %w", path, err)
		}
	}
	return data, free, nil
}

// Parse makes a tokenizer of the text of a tokenizer.json, which it does not keep.
func Parse(data []byte, o Options) (*Tokenizer, error) { return parse(data, o, Config{}) }

func parse(data []byte, o Options, c Config) (_ *Tokenizer, err error) {
	defer work.Catch(&err)
	t := &Tokenizer{config: c, loading: o.budget()}
	t.loading.Step(len(data) / 4) // parse reads the parts several times, at the speed of memory
	by, known := classes[o.Class]
	if o.Class != "" && !known {
		return nil, fmt.Errorf("the tokenizer class %q is not supported", o.Class)
	}
	if err := c.supported(); err != nil {
		return nil, err
	}
	fields := map[string][]byte{}
	r := &reader{b: data}
	if err := r.object(func(key []byte) error {
		name := string(key)
		raw, err := r.raw(0)
		fields[name] = raw
		return err
	}); err != nil {
		return nil, err
	}
	if r.peek() != 0 || r.i != len(r.b) {
		return nil, r.fail()
	}
	var version string
	if v := fields["version"]; v != nil && (json.Unmarshal(v, &version) != nil || version != "1.0") {
		return nil, fmt.Errorf("the version %s is not supported, only \"1.0\"", shorten(v))
	}
	if o.Class != "" {
		by.replace(fields, c)
	}
	if err := t.addNormalizer(fields["normalizer"], 0); err != nil {
		return nil, err
	}
	if err := t.addPreTokenizer(fields["pre_tokenizer"], 0); err != nil {
		return nil, err
	}
	if err := t.addPostProcessor(fields["post_processor"], 0); err != nil {
		return nil, err
	}
	set, err := t.loadModel(fields["model"], by.model)
	if err != nil {
		return nil, err
	}
	var added []addedToken
	if raw := fields["added_tokens"]; raw != nil {
		if err := json.Unmarshal(raw, &added); err != nil {
			return nil, fmt.Errorf("the added_tokens cannot be read: %w", err)
		}
	}
	if o.Class == "" {
		t.config.noteAlike(fields, set, added)
	}
	if o.Class != "" && len(c.decoder) > 0 {
		added = nil // the class takes the added tokens from the configuration
	}
	if err := t.addTokens(c.tokens(added)); err != nil {
		return nil, err
	}
	t.loading = nil
	return t, t.newCache(o)
}

func (o Options) budget() *work.Budget {
	if o.Work != nil {
		return o.Work
	}
	return new(work.Budget)
}

func shorten(b []byte) string {
	if len(b) > 100 {
		return strings.ToValidUTF8(string(b[:100]), "") + "…"
	}
	return string(b)
}

// modelSettings are a model's fields besides its vocabulary and merges.
type modelSettings struct {
	Type         string
	Dropout      *float64
	Unk          *string
	Prefix       string
	Suffix       string
	FuseUnk      bool
	ByteFallback bool
	IgnoreMerges bool
}

// loadModel reads the model: first its settings (by, if not nil, replaces them), then
// vocabulary, then merges, whatever their order in the file.
func (t *Tokenizer) loadModel(raw []byte, by *modelSettings) (set modelSettings, err error) {
	if raw == nil {
		return set, errors.New("there is no model")
	}
	fields := map[string][]byte{}
	r := &reader{b: raw}
	if err := r.object(func(key []byte) error {
		name := string(key)
		v, err := r.raw(0)
		fields[name] = v
		return err
	}); err != nil {
		return set, err
	}
	for name, dst := range map[string]any{
		"type": &set.Type, "dropout": &set.Dropout, "unk_token": &set.Unk, "continuing_subword_prefix": &set.Prefix,
		"end_of_word_suffix": &set.Suffix, "fuse_unk": &set.FuseUnk, "byte_fallback": &set.ByteFallback, "ignore_merges": &set.IgnoreMerges,
	} {
		if v := fields[name]; v != nil {
			if err := json.Unmarshal(v, dst); err != nil {
				return set, fmt.Errorf("the model's %s cannot be read: %w", name, err)
			}
		}
	}
	if set.Type != "BPE" && !(set.Type == "" && fields["merges"] != nil) {
		return set, fmt.Errorf("the model %q is not supported, only BPE", set.Type)
	}
	if set.Dropout != nil && *set.Dropout != 0 {
		return set, fmt.Errorf("the model's dropout %v makes tokens random and is not supported", *set.Dropout)
	}
	if fields["vocab"] == nil || fields["merges"] == nil {
		return set, errors.New("the model has no vocab or no merges")
	}
	if by != nil {
		set = *by
	}
	m := &t.model
	m.fuseUnk, m.byteFallback, m.ignoreMerges = set.FuseUnk, set.ByteFallback, set.IgnoreMerges
	l := &modelLoader{m: m, prefix: []byte(set.Prefix), work: t.loading}
	if err := l.affixes(set.Prefix, set.Suffix); err != nil {
		return set, err
	}
	if err := l.vocab(fields["vocab"]); err != nil {
		return set, err
	}
	if err := l.specials(set.Unk); err != nil {
		return set, err
	}
	if err := l.merges(fields["merges"]); err != nil {
		return set, err
	}
	t.modelSize = l.size
	t.foreign = l.foreign
	m.prepare(t.loading)
	m.prepareCuts(l.mergesUseBytes)
	if m.byteLevel && !m.plain && set.Unk != nil && m.unk < 0 {
		return set, fmt.Errorf("the model's unk_token %q is not in its vocabulary", *set.Unk)
	}
	return set, nil
}

// modelLoader fills a bpe.
type modelLoader struct {
	work   *work.Budget
	m      *bpe
	prefix []byte // as written in the file
	size   int    // entries of the vocabulary
	// foreign are the entries of a byte-level vocabulary with characters outside the
	// byte-level alphabet, mostly special tokens: no word has their text.
	foreign        map[string]uint32
	mergesUseBytes bool
	left, buf      []byte
}

// own appends a token's text as words have it.
func (l *modelLoader) own(dst, text []byte) ([]byte, bool) {
	if !l.m.byteLevel {
		return append(dst, text...), true
	}
	return appendUnmapped(dst, text)
}

func (l *modelLoader) affixes(prefix, suffix string) error {
	var ok1, ok2 bool
	l.m.prefix, ok1 = l.own(nil, []byte(prefix))
	l.m.suffix, ok2 = l.own(nil, []byte(suffix))
	if !ok1 || !ok2 || l.m.byteLevel && l.m.byteFallback && prefix+suffix != "" {
		return errors.New("the model's continuing_subword_prefix or end_of_word_suffix is not supported with its pre-tokenizer ByteLevel")
	}
	return nil
}

func (l *modelLoader) vocab(raw []byte) error {
	n, size := 0, 0
	r := &reader{b: raw}
	if err := r.object(func(key []byte) error {
		n, size = n+1, size+len(key)
		_, err := r.id()
		return err
	}); err != nil {
		return fmt.Errorf("the model's vocab cannot be read: %w", err)
	}
	l.work.Memory(size + 2*slotBytes*n)
	l.m.vocab = newVocabulary(n, size)
	l.foreign = map[string]uint32{}
	r = &reader{b: raw}
	return r.object(func(key []byte) error {
		l.work.Step(entrySteps + len(key)/4)
		own, ok := l.own(l.buf[:0], key)
		l.buf = own
		empty := len(key) == 0
		var outside string
		if !ok || empty {
			outside = string(key)
		}
		id, err := r.id()
		if err != nil {
			return err
		}
		if id > maxID {
			return fmt.Errorf("the token id %d is above %d", id, maxID)
		}
		if !ok || empty {
			l.work.Memory(slotBytes + len(outside))
			l.foreign[outside] = id
		} else {
			l.m.vocab.put(own, id)
		}
		if l.m.vocab.crowded {
			return errCrowded
		}
		l.size = l.m.vocab.count + len(l.foreign)
		return nil
	})
}

// id looks up a token by its text in the file.
func (l *modelLoader) id(text []byte) (id uint32, reachable, ok bool) {
	own, mine := l.own(l.buf[:0], text)
	l.buf = own
	if mine && len(own) > 0 {
		id, ok = l.m.vocab.id(own)
		return id, true, ok
	}
	id, ok = l.foreign[string(text)]
	return id, false, ok
}

func (l *modelLoader) specials(unk *string) error {
	m := l.m
	m.unk = -1
	if unk != nil {
		id, _, ok := l.id([]byte(*unk))
		if ok {
			m.unk = int64(id)
		} else if !m.byteLevel {
			return fmt.Errorf("the model's unk_token %q is not in its vocabulary", *unk)
		}
	}
	for b := range m.fallback {
		m.fallback[b] = -1
		if id, _, ok := l.id([]byte(byteToken(b))); ok && m.byteFallback {
			m.fallback[b] = int32(id)
		}
	}
	return nil
}

func (l *modelLoader) merges(raw []byte) error {
	r := &reader{b: raw}
	n := 0
	if err := r.array(func() error { n++; _, err := r.raw(0); return err }); err != nil {
		return fmt.Errorf("the model's merges cannot be read: %w", err)
	}
	l.work.Memory(2 * slotBytes * n)
	l.m.merges = newMerges(n)
	special := map[uint32]bool{}
	for _, id := range l.m.fallback {
		if id >= 0 {
			special[uint32(id)] = true
		}
	}
	if l.m.unk >= 0 {
		special[uint32(l.m.unk)] = true
	}
	r = &reader{b: raw}
	rank, pairs := uint32(0), false
	return r.array(func() error {
		var left, right []byte
		var err error
		if r.peek() == '[' {
			left, right, err = l.pair(r)
			pairs = true
		} else {
			var line []byte
			if line, err = r.str(); err != nil {
				return err
			}
			if pairs {
				return fmt.Errorf("merge %d is written otherwise than those before", rank)
			}
			if strings.HasPrefix(string(line), "#version") {
				return nil
			}
			a, b, ok := strings.Cut(string(line), " ")
			if !ok || strings.Contains(b, " ") {
				return fmt.Errorf("merge %d is not two texts with a space between", rank)
			}
			left, right = []byte(a), []byte(b)
		}
		if err != nil {
			return err
		}
		l.work.Step(2*entrySteps + (len(left)+len(right))/4)
		err = l.merge(left, right, rank, special)
		if rank++; err == nil && l.m.merges.crowded {
			err = errCrowded
		}
		return err
	})
}

func (l *modelLoader) pair(r *reader) (left, right []byte, err error) {
	n := 0
	err = r.array(func() error {
		s, err := r.str()
		if n == 0 {
			l.left = append(l.left[:0], s...)
		}
		right = s
		n++
		return err
	})
	if err == nil && n != 2 {
		err = fmt.Errorf("a merge of %d texts", n)
	}
	return l.left, right, err
}

func (l *modelLoader) merge(left, right []byte, rank uint32, special map[uint32]bool) error {
	a, ok1, found1 := l.id(left)
	b, ok2, found2 := l.id(right)
	if len(right) < len(l.prefix) {
		return fmt.Errorf("merge %d has a right side shorter than the continuing_subword_prefix", rank)
	}
	joined := append(append([]byte(nil), left...), right[len(l.prefix):]...)
	id, ok3, found3 := l.id(joined)
	if !found1 || !found2 || !found3 {
		return fmt.Errorf("merge %d uses a text that is not in the vocabulary", rank)
	}
	if special[a] || special[b] {
		l.mergesUseBytes = true
	}
	_, _, _ = ok1, ok2, ok3 // a merge no text reaches does no harm
	l.m.merges.put(a, b, rank, id)
	return nil
}
