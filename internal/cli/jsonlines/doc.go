// Package jsonlines reads the lines of commands that take JSON lines. It has no state.
package jsonlines
