package config

import (
	"bytes"
	"context"
	"time"
)

// Watch reads the file every f.Every until ctx ends and passes each new, valid
// value to apply. When the file cannot be read, has a mistake, or apply refuses
// it, Watch calls failed once per content, and the last applied value stays in
// force. Both functions run on Watch's goroutine, one at a time. Watch returns
// nil when ctx ends.
//
// Watch compares with the content that Load has read last; without a Load the
// first content counts as new, and so does the content of a file that could not be
// read before. f.Now also makes Watch try refused content again.
func (f *File[T]) Watch(ctx context.Context, apply func(T) error, failed func(error)) error {
	every, settle := f.Every, f.Settle
	if every <= 0 {
		every = 500 * time.Millisecond
	}
	if settle <= 0 {
		settle = 200 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	readFailed, refused := "", false
	for {
		again := false
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-f.Now:
			again = refused
		}
		data, err := f.settled(ctx, settle)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if text := err.Error(); text != readFailed {
				readFailed = text
				failed(err)
			}
			continue
		}
		if readFailed == "" && !again && bytes.Equal(data, f.last) {
			continue
		}
		readFailed, f.last = "", data
		v, err := f.parse(data)
		if err == nil {
			err = f.Locate(apply(v))
		}
		if refused = err != nil; refused {
			failed(err)
		}
	}
}

// settled reads the file until its content is the known one or has stopped
// changing.
func (f *File[T]) settled(ctx context.Context, settle time.Duration) ([]byte, error) {
	data, err := f.read()
	for err == nil && !bytes.Equal(data, f.last) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(settle):
		}
		again, readErr := f.read()
		if readErr == nil && bytes.Equal(again, data) {
			break
		}
		data, err = again, readErr
	}
	return data, err
}
