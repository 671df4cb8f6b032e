package tokens

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"warmroute/internal/chat"
	"warmroute/internal/tokenizer"
)

// mistralFile is a SentencePiece model's name, with the version of its instruct
// format; an image format may follow it.
var mistralFile = regexp.MustCompile(`\.model(?:\.v(1|2|3|7|11)(m1)?)?$`)

// loadMistral loads a model in Mistral's own format.
func loadMistral(dir string, kind chat.Model, f Flags) (Model, error) {
	tok, about, err := loadMistralTokenizer(dir)
	if err != nil {
		return Model{}, fmt.Errorf("model folder %s: %w", dir, err)
	}
	kind.Mistral = about
	m := Model{Encoder: tok}
	if f.StoreBytes >= 0 {
		store, err := tokenizer.NewStore(tok, either(f.StoreBytes, DefaultStoreBytes))
		if err != nil {
			return Model{}, fmt.Errorf("model folder %s: %w", dir, err)
		}
		m.Encoder = storeEncoder{store}
	}
	return m, m.configure(chat.Options{Model: kind}, f)
}

// loadMistralTokenizer takes the file that mistral-common takes: tekken.json, or
// else the last SentencePiece model by its name.
func loadMistralTokenizer(dir string) (*tokenizer.Tokenizer, tokenizer.Mistral, error) {
	tekken := filepath.Join(dir, "tekken.json")
	if _, err := os.Stat(tekken); err == nil {
		return tokenizer.LoadTekken(tekken, tokenizer.Options{})
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
	tok, err := tokenizer.LoadSentencePiece(filepath.Join(dir, name), tokenizer.Options{})
	return tok, tokenizer.Mistral{Version: version}, err
}
