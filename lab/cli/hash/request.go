package hash

import (
	"fmt"
	"math"
	"math/big"

	"warmroute/prefixhash"
	"warmroute/render/pyvalue"
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

// parse reads a line. Errors name the field, and its value unless that is the
// request's own content or a secret.
func parse(line []byte) (request, error) {
	var r request
	v, err := pyvalue.Parse(line)
	if err != nil {
		return r, err
	}
	object, ok := v.(*pyvalue.Dict)
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

// known returns the fields that are present and not null.
func known(object *pyvalue.Dict) (map[string]any, error) {
	values := make(map[string]any, len(fields))
	for k, v := range object.All() {
		name, _ := k.(string)
		found := false
		for _, f := range fields {
			found = found || f == name
		}
		if !found {
			return nil, fmt.Errorf("unknown field %q", name)
		}
		if v != nil {
			values[name] = v
		}
	}
	return values, nil
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
	n, ok := v.(int64)
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
	list, ok := v.(*pyvalue.List)
	if !ok {
		return nil, fmt.Errorf("tokens is %s, want a list of token ids", kindOf(v))
	}
	ids := make([]uint32, len(list.Items))
	for i, v := range list.Items {
		n, ok := v.(int64)
		if _, big := v.(*big.Int); !ok && !big {
			return nil, fmt.Errorf("tokens[%d] is %s, want an integer", i, kindOf(v))
		}
		if !ok || n < 0 || n > math.MaxUint32 {
			return nil, fmt.Errorf("tokens[%d] is not between 0 and %d", i, uint32(math.MaxUint32))
		}
		ids[i] = uint32(n)
	}
	return ids, nil
}

// mixed reads what a request mixes into its blocks.
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
	list, ok := v.(*pyvalue.List)
	if !ok {
		return r, fmt.Errorf("mm is %s, want a list of [id, offset, length]", kindOf(v))
	}
	for i, v := range list.Items {
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
	offset, ok := parts[1].(int64)
	if !ok || offset < 0 || offset > maxPosition {
		return m, fmt.Errorf("has an offset that is no integer from 0 to %d", maxPosition)
	}
	length, ok := parts[2].(int64)
	if !ok || length <= 0 || length > maxPosition {
		return m, fmt.Errorf("has a length that is no integer from 1 to %d", maxPosition)
	}
	return prefixhash.MM{ID: id, Offset: int(offset), Length: int(length)}, nil
}

func items(v any, n int) ([]any, bool) {
	list, ok := v.(*pyvalue.List)
	if !ok || len(list.Items) != n {
		return nil, false
	}
	return list.Items, true
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
	case float64:
		return "a fraction"
	case *pyvalue.List:
		return fmt.Sprintf("a list of %d", len(v.Items))
	case *pyvalue.Dict:
		return "an object"
	case int64:
		return "an integer"
	}
	return "an integer beyond 64 bits"
}
