package render

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"warmroute/render/internal/chat"
	"warmroute/render/internal/tokenizer"
)

// mistralFile matches the name of a SentencePiece model, with the version of its
// instruct format; an image format may follow it.
var mistralFile = regexp.MustCompile(`\.model(?:\.v(1|2|3|7|11)(m1)?)?$`)

// openMistral reads a model in Mistral's own format.
func openMistral(ctx context.Context, dir string, kind chat.Model, f Flags) (*Model, error) {
	tok, about, err := loadMistralTokenizer(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("model folder %s: %w", dir, err)
	}
	kind.Mistral = about
	encoder, err := stored(tok, f)
	if err != nil {
		return nil, fmt.Errorf("model folder %s: %w", dir, err)
	}
	return newModel(encoder, chat.Options{Model: kind}, f)
}

// loadMistralTokenizer loads the file that mistral-common chooses: tekken.json, or else
// the last SentencePiece model in the order of names.
func loadMistralTokenizer(ctx context.Context, dir string) (*tokenizer.Tokenizer, tokenizer.Mistral, error) {
	tekken := filepath.Join(dir, "tekken.json")
	if _, err := os.Stat(tekken); err == nil {
		return tokenizer.LoadTekken(tekken, tokenizer.Options{Work: loadWork(ctx, tekken)})
	}
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, tokenizer.Mistral{}, err
	}
	name, version := "", 0
	for _, e := range entries {
		if found := mistralFile.FindStringSubmatch(e.Name()); found != nil {
			name, version = e.Name(), 1
			if found[1] != "" {
				version, _ = strconv.Atoi(found[1]) // digits
			}
		}
	}
	if name == "" {
		return nil, tokenizer.Mistral{}, fmt.Errorf("there is no tekken.json and no tokenizer.model")
	}
	path := filepath.Join(dir, name)
	tok, err := tokenizer.LoadSentencePiece(path, tokenizer.Options{Work: loadWork(ctx, path)})
	return tok, tokenizer.Mistral{Version: version}, err
}
