package tokens

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"warmroute/internal/modelfiles"
	"warmroute/render"
)

const (
	// mostModels bounds the tokenizers that are loaded at once: more than the base models of a router
	// in practice.
	mostModels = 32
	// DefaultModelBytes of memory are enough for mostModels of Qwen's size with their stores.
	DefaultModelBytes = 4 << 30
	// perTokenizer and perFileByte estimate a loaded tokenizer's memory: 8 of 8 measured
	// ones, from GPT-2's to Gemma's, take less.
	perTokenizer = 8 << 20
	perFileByte  = 2
)

// ErrFull is matched by the error of a model for which the limits leave no memory.
var ErrFull = errors.New("the limit of loaded tokenizers is reached")

// Library holds models loaded from folders, by the contents of the files and the flags: those who
// use equal models share one tokenizer, one store and the compiled templates. It keeps
// a model until its last loan ends. Safe for concurrent use; no lock is held while
// files are read.
type Library struct {
	mu    sync.Mutex // guards the fields below
	most  int64      // bytes
	books map[[sha256.Size]byte]*book
	bytes int64
	sums  map[string]fileSum // of files, by their real paths
}

// book is a model that is loaded or being loaded.
type book struct {
	key   [sha256.Size]byte
	bytes int64 // reserved for it
	loans int
	done  chan struct{} // closed when model and err are set
	model Model
	err   error
}

// fileSum is the hash of a file's contents, as long as the file is the same.
type fileSum struct {
	info fs.FileInfo
	sum  [sha256.Size]byte
}

// NewLibrary returns an empty Library for tokenizers, and their stores of prompts' beginnings, of so
// many bytes together.
func NewLibrary(bytes int64) *Library {
	return &Library{most: bytes, books: map[[sha256.Size]byte]*book{}, sums: map[string]fileSum{}}
}

// Limit changes the bytes for models that are loaded later.
func (l *Library) Limit(bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.most = bytes
}

// LibraryStats count the contents of a Library.
type LibraryStats struct {
	Models int   // tokenizers
	Names  int   // served models that use them
	Bytes  int64 // of memory, estimated
}

// Stats returns the Library's counts.
func (l *Library) Stats() LibraryStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := LibraryStats{Models: len(l.books), Bytes: l.bytes}
	for _, b := range l.books {
		s.Names += b.loans
	}
	return s
}

// Loan is the use of a model for one served name.
type Loan struct {
	Model
	library *Library
	book    *book
}

// Load returns the model of a folder. The error matches ErrFull if the limits leave no memory
// for it.
func (l *Library) Load(ctx context.Context, dir string, f Flags) (*Loan, error) {
	key, size, err := l.contents(dir, f)
	if err != nil {
		return nil, err
	}
	size = perTokenizer + perFileByte*size + max(0, cmp.Or(f.StoreBytes, render.DefaultStoreBytes))
	for {
		b, first, err := l.take(key, size)
		if err != nil {
			return nil, err
		}
		if first {
			b.model, b.err = LoadFolder(ctx, dir, f)
			l.reserve(b)
			close(b.done)
		}
		select {
		case <-b.done:
			err = b.err
		case <-ctx.Done():
			err = ctx.Err()
		}
		loan := &Loan{library: l, book: b}
		if err == nil {
			loan.Model = b.model
			return loan, nil
		}
		loan.End()
		ended := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
		if first || !ended || ctx.Err() != nil { // otherwise another name's attempt has ended
			return nil, err
		}
	}
}

// take returns the book of a key with one loan more. With first it makes a new book.
func (l *Library) take(key [sha256.Size]byte, size int64) (b *book, first bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b = l.books[key]; b == nil {
		if len(l.books) >= mostModels || l.bytes+size > l.most {
			return nil, false, fmt.Errorf("%w: %d are loaded (of %d at most) and take %d MiB with their stores; this one needs %d MiB (tokens.max_loaded_mib is %d)",
				ErrFull, len(l.books), mostModels, l.bytes>>20, size>>20, l.most>>20)
		}
		b, first = &book{key: key, bytes: size, done: make(chan struct{})}, true
		l.books[key] = b
		l.bytes += size
	}
	b.loans++
	return b, first, nil
}

// reserve counts the memory of the second tokenizer that a loaded model may have.
func (l *Library) reserve(b *book) {
	if b.err != nil || !b.model.Info().ByClass {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes += b.bytes
	b.bytes *= 2
}

// End ends the loan, and the model leaves the Library after the last one. A loan ends once; nil is none.
func (o *Loan) End() {
	if o == nil {
		return
	}
	l, b := o.library, o.book
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.loans--; b.loans == 0 {
		delete(l.books, b.key)
		l.bytes -= b.bytes
	}
}

// contents returns a hash of the files and flags that decide a folder's model, and the size
// of the files.
func (l *Library) contents(dir string, f Flags) (key [sha256.Size]byte, size int64, err error) {
	paths, err := render.Files(dir)
	if err != nil {
		return key, 0, fmt.Errorf("model folder %s: %w", dir, err)
	}
	if f.ChatTemplate != "" {
		paths = append(paths, f.ChatTemplate)
	}
	zone := time.UTC.String()
	if f.Location != nil {
		zone = f.Location.String()
	}
	flags, err := json.Marshal(struct {
		Flags
		Location string // replaces that of Flags
	}{f, zone})
	if err != nil {
		return key, 0, err
	}
	all := sha256.New()
	_, _ = all.Write(flags)
	for _, path := range paths {
		sum, bytes, err := l.sum(path)
		if err != nil {
			return key, 0, fmt.Errorf("model folder %s: %w", dir, err)
		}
		size += bytes
		fmt.Fprintf(all, "\n%s %x", filepath.Base(path), sum)
	}
	return [sha256.Size]byte(all.Sum(nil)), size, nil
}

// sum hashes a file, once while it stays the same. A model's files have few real paths,
// whatever the names of its folder.
func (l *Library) sum(name string) (sum [sha256.Size]byte, size int64, err error) {
	path, err := filepath.EvalSymlinks(name)
	if err != nil {
		return sum, 0, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return sum, 0, err
	}
	if limit := modelfiles.Limit(filepath.Base(name)); !info.Mode().IsRegular() || info.Size() > limit {
		return sum, 0, fmt.Errorf("%s is no file of at most %d bytes", name, limit)
	}
	l.mu.Lock()
	known, ok := l.sums[path]
	l.mu.Unlock()
	if ok && os.SameFile(known.info, info) && known.info.Size() == info.Size() && known.info.ModTime().Equal(info.ModTime()) {
		return known.sum, info.Size(), nil
	}
	file, err := os.Open(path)
	if err != nil {
		return sum, 0, err
	}
	defer file.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(file, info.Size())); err != nil {
		return sum, 0, err
	}
	sum = [sha256.Size]byte(h.Sum(nil))
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.sums) >= mostSums {
		clear(l.sums)
	}
	l.sums[path] = fileSum{info, sum}
	return sum, info.Size(), nil
}

// mostSums bounds the files whose hashes are remembered.
const mostSums = 4096
