package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.yaml.in/yaml/v3"
)

// maxFile is the largest file read: four times what a Kubernetes config map can
// hold, small enough that a wrong path (a disk image, a pipe) costs nothing.
const maxFile = 4 << 20

// File is one configuration file that decodes into T. Set the exported fields
// before the first call. Load and Watch must not run at the same time.
type File[T any] struct {
	Path string
	// Defaults gives the value the file is laid over, fresh on each call. nil
	// means the zero T.
	Defaults func() T
	// LookupEnv finds the variables of ${NAME}; nil means os.LookupEnv.
	LookupEnv func(string) (string, bool)
	// Every is how often Watch reads the file; 0 means 500 ms, which costs some
	// 20 µs each and is not waited for by whoever has added a replica.
	Every time.Duration
	// Settle is how long changed content must stay the same before Watch takes
	// it, so that a half-written file is not applied; 0 means 200 ms.
	Settle time.Duration

	// Now asks Watch for a look at once, as SIGHUP does; nil: nobody asks.
	Now <-chan os.Signal

	last []byte // the content Load or Watch saw last
}

// Load reads path over defaults. The error joins every problem found, one
// sentence each; see [Parse].
func Load[T any](path string, defaults func() T) (T, error) {
	f := File[T]{Path: path, Defaults: defaults}
	return f.Load()
}

// Load reads the file and remembers its content for Watch.
func (f *File[T]) Load() (T, error) {
	data, err := f.read()
	if err != nil {
		var zero T
		return zero, err
	}
	f.last = data
	return f.parse(data)
}

func (f *File[T]) parse(data []byte) (T, error) {
	lookup := f.LookupEnv
	if lookup == nil {
		lookup = os.LookupEnv
	}
	var v T
	if f.Defaults != nil {
		v = f.Defaults()
	}
	return Parse(data, v, lookup)
}

func (f *File[T]) read() ([]byte, error) {
	file, err := os.Open(f.Path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("config: %s is not a regular file", f.Path)
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("config: %s is larger than %d bytes", f.Path, maxFile)
	}
	return data, nil
}

// Parse lays the YAML document in data over defaults and validates the result.
// Unknown and repeated keys, values of the wrong type, variables that are not
// set, numbers where a duration is meant, and whatever the Validate methods
// return are all reported together, each as one error of an errors.Join, with
// the lines of the fields that it names as far as the file has them. An
// empty document is the defaults. T must be a struct; maps inside defaults are
// written into.
func Parse[T any](data []byte, defaults T, lookup func(string) (string, bool)) (T, error) {
	var zero T
	root, err := document(data)
	if err != nil {
		return zero, err
	}
	v := defaults
	c := checker{lookup: lookup, original: map[*yaml.Node]string{}, lines: lines{}}
	if root != nil {
		c.document(root, &v)
		if err := root.Decode(&v); err != nil && len(c.problems) == 0 {
			return zero, fmt.Errorf("config: %w", err)
		}
	}
	problems := c.problems
	for _, err := range validate(&v) {
		problems = append(problems, c.lines.locate(err))
	}
	if len(problems) > 0 {
		return zero, errors.Join(problems...)
	}
	return v, nil
}

// document returns the root of the only document in data, nil if it is empty.
func document(data []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errors.New("config: the file must hold one YAML document, it holds more")
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, errors.New("config: the file holds no YAML document")
	}
	return doc.Content[0], nil
}
