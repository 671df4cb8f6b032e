package hash

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"warmroute/prefixhash"
	"warmroute/render"
)

// request is one line.
type request struct {
	hasher    *prefixhash.VLLM
	blockSize int
	tokens    []uint32
	mixed     prefixhash.Request
}

// fields are the names a line may have.
var fields = [...]string{"scheme", "generation", "seed", "block_size", "tokens", "lora", "cache_salt", "mm"}

// parse reads a line. Errors name the field, and its value unless the value is content of
// the request or a secret.
func parse(line []byte) (request, error) {
	var r request
	v, err := read(line)
	if err != nil {
		return r, err
	}
	object, ok := v.(map[string]any)
	if !ok {
		return r, fmt.Errorf("a line is %s, want a JSON object", kindOf(v))
	}
	values, err := known(object)
	if err != nil {
		return r, err
	}
	if r.hasher, err = hasher(values); err != nil {
		return r, err
	}
	if r.blockSize, err = blockSize(values["block_size"]); err != nil {
		return r, err
	}
	if r.tokens, err = tokens(values["tokens"]); err != nil {
		return r, err
	}
	if r.mixed, err = mixed(values); err != nil {
		return r, err
	}
	if _, ok := r.hasher.Root(); !ok {
		return r, fmt.Errorf("seed is null: vLLM's %v in its %v generation then starts from a random value, so there is nothing to compute",
			r.hasher.Algorithm(), r.hasher.Generation())
	}
	return r, nil
}

// read decodes a line as Python does. Python refuses JSON that encoding/json accepts:
// repeated keys, and texts that are not Unicode.
func read(line []byte) (v any, err error) {
	strict, err := render.AppendJSON(nil, line)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(strict))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, errors.New("a number is not finite")
	}
	return v, nil
}

// known returns the fields that are present and not null.
func known(object map[string]any) (map[string]any, error) {
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if !slices.Contains(fields[:], name) {
			return nil, fmt.Errorf("unknown field %q", name)
		}
		if object[name] == nil {
			delete(object, name)
		}
	}
	return object, nil
}

// integer returns the value of an integer within 64 bits.
func integer(v any) (n int64, ok bool) {
	number, _ := v.(json.Number)
	n, err := strconv.ParseInt(number.String(), 10, 64)
	return n, err == nil
}

// whole reports whether v is an integer of any size.
func whole(v any) bool {
	number, ok := v.(json.Number)
	return ok && !strings.ContainsAny(number.String(), ".e")
}

func hasher(values map[string]any) (*prefixhash.VLLM, error) {
	var o prefixhash.VLLMOptions
	name, err := text(values, "scheme")
	if err != nil {
		return nil, err
	}
	if name == nil {
		return nil, fmt.Errorf("scheme is missing: want sha256, sha256_cbor, xxhash or xxhash_cbor")
	}
	if o.Algorithm, err = prefixhash.ParseAlgorithm(*name); err != nil {
		return nil, fmt.Errorf("scheme: %w", err)
	}
	if name, err = text(values, "generation"); err != nil {
		return nil, err
	}
	if name == nil {
		return nil, fmt.Errorf("generation is missing: want tagged or untagged")
	}
	if o.Generation, err = prefixhash.ParseGeneration(*name); err != nil {
		return nil, err
	}
	if o.Seed, err = text(values, "seed"); err != nil {
		return nil, err
	}
	return prefixhash.NewVLLM(o)
}

// text returns a string field, nil if it is absent.
func text(values map[string]any, field string) (*string, error) {
	switch v := values[field].(type) {
	case nil:
		return nil, nil
	case string:
		return &v, nil
	default:
		return nil, fmt.Errorf("%s is %s, want a string", field, kindOf(v))
	}
}

func blockSize(v any) (int, error) {
	n, ok := integer(v)
	switch {
	case v == nil:
		return 0, fmt.Errorf("block_size is missing: want a positive integer")
	case !ok:
		return 0, fmt.Errorf("block_size is %s, want a positive integer", kindOf(v))
	case n <= 0 || n > math.MaxInt32:
		return 0, fmt.Errorf("block_size is %d, want 1 to %d", n, math.MaxInt32)
	}
	return int(n), nil
}

func tokens(v any) ([]uint32, error) {
	if v == nil {
		return nil, fmt.Errorf("tokens is missing: want a list of token ids")
	}
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("tokens is %s, want a list of token ids", kindOf(v))
	}
	ids := make([]uint32, len(list))
	for i, v := range list {
		if !whole(v) {
			return nil, fmt.Errorf("tokens[%d] is %s, want an integer", i, kindOf(v))
		}
		if n, ok := integer(v); !ok || n < 0 || n > math.MaxUint32 {
			return nil, fmt.Errorf("tokens[%d] is not between 0 and %d", i, uint32(math.MaxUint32))
		} else {
			ids[i] = uint32(n)
		}
	}
	return ids, nil
}

// mixed reads the inputs of a request's block hashes besides its tokens.
func mixed(values map[string]any) (r prefixhash.Request, err error) {
	if r.CacheSalt, err = text(values, "cache_salt"); err != nil {
		return r, err
	}
	if v := values["lora"]; v != nil {
		pair, ok := items(v, 2)
		if !ok {
			return r, fmt.Errorf("lora is %s, want a list of the adapter's name and path", kindOf(v))
		}
		name, named := pair[0].(string)
		path, pathed := pair[1].(string)
		if !named || !pathed {
			return r, fmt.Errorf("lora holds %s and %s, want two strings: name and path", kindOf(pair[0]), kindOf(pair[1]))
		}
		r.LoRA, r.LoRAPath = prefixhash.LoRA{Name: name, Set: true}, path
	}
	v := values["mm"]
	if v == nil {
		return r, nil
	}
	list, ok := v.([]any)
	if !ok {
		return r, fmt.Errorf("mm is %s, want a list of [id, offset, length]", kindOf(v))
	}
	for i, v := range list {
		m, err := item(v)
		if err != nil {
			return r, fmt.Errorf("mm[%d] %w", i, err)
		}
		r.MM = append(r.MM, m)
	}
	return r, nil
}

// maxPosition bounds offsets and lengths so that their sum stays an int.
const maxPosition = math.MaxInt32 / 2

func item(v any) (m prefixhash.MM, err error) {
	parts, ok := items(v, 3)
	if !ok {
		return m, fmt.Errorf("is %s, want [id, offset, length]", kindOf(v))
	}
	id, ok := parts[0].(string)
	if !ok {
		return m, fmt.Errorf("has %s for its id, want a string", kindOf(parts[0]))
	}
	offset, ok := integer(parts[1])
	if !ok || offset < 0 || offset > maxPosition {
		return m, fmt.Errorf("has an offset that is no integer from 0 to %d", maxPosition)
	}
	length, ok := integer(parts[2])
	if !ok || length <= 0 || length > maxPosition {
		return m, fmt.Errorf("has a length that is no integer from 1 to %d", maxPosition)
	}
	return prefixhash.MM{ID: id, Offset: int(offset), Length: int(length)}, nil
}

func items(v any, n int) ([]any, bool) {
	list, ok := v.([]any)
	return list, ok && len(list) == n
}

// kindOf names a value's JSON type, not the value.
func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case []any:
		return fmt.Sprintf("a list of %d", len(v))
	case map[string]any:
		return "an object"
	}
	if _, ok := integer(v); ok {
		return "an integer"
	}
	if whole(v) {
		return "an integer beyond 64 bits"
	}
	return "a fraction"
}
