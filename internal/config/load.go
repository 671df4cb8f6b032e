package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"sort"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"
)

// maxFile is the largest file read: four times a Kubernetes config map's limit, small
// enough that a wrong path (a disk image, a pipe) costs nothing.
const maxFile = 4 << 20

// File is one configuration file that decodes into T. Set the exported fields
// before the first call. Load and Watch must not run at the same time.
type File[T any] struct {
	Path string
	// Defaults returns the values of fields that the file does not set, a new value
	// on each call. nil means the zero T.
	Defaults func() T
	// Every is how often Watch reads the file; 0 means 500 ms. One read costs some
	// 20 µs, and a change takes effect without a noticeable delay.
	Every time.Duration
	// Settle is how long changed content must stay the same before Watch applies
	// it, so that a half-written file is not applied; 0 means 200 ms.
	Settle time.Duration

	// Now makes Watch read the file at once, as SIGHUP does; nil: never.
	Now <-chan os.Signal

	last  []byte // the last content that Load or Watch has read
	lines lines  // of last
}

// Load reads path over defaults; see [Parse].
func Load[T any](path string, defaults func() T) (T, error) {
	f := File[T]{Path: path, Defaults: defaults}
	return f.Load()
}

// Load reads the file and keeps its content for Watch.
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
	var v T
	if f.Defaults != nil {
		v = f.Defaults()
	}
	v, at, err := parse(f.Path, data, v, os.LookupEnv)
	f.lines = at
	return v, err
}

// Locate makes [Problem]s of errors of the form "field: sentence" about the values
// of the last file.
func (f *File[T]) Locate(err error) error {
	return ordered(f.lines.locate(f.Path, split(err)))
}

func (f *File[T]) read() ([]byte, error) {
	file, err := os.OpenFile(f.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would wait for a writer
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

// Parse applies the YAML document in data to defaults and validates the result;
// file is its name in errors.
// Unknown and repeated keys, values of the wrong type, variables that are not
// set, numbers where a duration is meant, and the errors of the Validate methods
// are all reported together, as an errors.Join of [Problem]s. An empty document is
// refused: it is a file that was cut off. T must be a struct; maps inside defaults
// are written into. A T with an inlined map has some of the file's sections, and the others may
// contain anything.
func Parse[T any](file string, data []byte, defaults T, lookup func(string) (string, bool)) (T, error) {
	v, _, err := parse(file, data, defaults, lookup)
	return v, err
}

// parse is Parse that also returns the lines of the fields.
func parse[T any](file string, data []byte, defaults T, lookup func(string) (string, bool)) (T, lines, error) {
	var zero T
	root, err := document(data)
	if err != nil {
		return zero, nil, &Problem{File: file, Line: badLine(data, err), Err: err}
	}
	if root == nil || root.Tag == "!!null" {
		return zero, nil, &Problem{File: file, Line: 1, Err: errEmpty}
	}
	v := defaults
	c := checker{file: file, lookup: lookup, original: map[*yaml.Node]string{}, lines: lines{}}
	c.document(root, &v)
	if err := root.Decode(&v); err != nil && len(c.problems) == 0 {
		return zero, nil, &Problem{File: file, Err: err}
	}
	if err := ordered(append(c.problems, c.lines.locate(file, validate(&v))...)); err != nil {
		return zero, nil, err
	}
	return v, c.lines, nil
}

// document returns the root of the only document in data, nil if it is empty.
func document(data []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, notYAML(err)
	}
	if err := dec.Decode(&second); err == nil {
		return nil, errSecond
	} else if !errors.Is(err, io.EOF) {
		return nil, notYAML(err)
	}
	return doc.Content[0], nil
}

var (
	errEmpty  = errors.New("the file is empty")
	errSecond = errors.New("a second YAML document begins; the file must hold one")
)

var yamlPlace = regexp.MustCompile(`^yaml: (line \d+: )?`)

// notYAML returns an error of the YAML library without its line number, which is
// often the line before, or the start of the collection around it.
func notYAML(err error) error {
	return errors.New("is not YAML: " + yamlPlace.ReplaceAllString(err.Error(), ""))
}

// badLine returns the first line at which data has the error bad.
func badLine(data []byte, bad error) int {
	var ends []int
	for line := range bytes.Lines(data) {
		ends = append(ends, len(line))
		if n := len(ends); n > 1 {
			ends[n-1] += ends[n-2]
		}
	}
	return 1 + sort.Search(len(ends)-1, func(i int) bool {
		_, err := document(data[:ends[i]])
		return err != nil && err.Error() == bad.Error()
	})
}
