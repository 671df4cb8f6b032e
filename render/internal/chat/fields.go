package chat

import (
	"warmroute/render/internal/pyvalue"
	"warmroute/render/openai"
	"warmroute/render/work"
)

// request is a request with the budget that pays for rendering it.
type request struct {
	*openai.Request
	work *work.Budget
}

// parseField reads a span of the body as Python's json does. It returns nil for a field
// that is absent or null. Nobody may change the elements of an array of messages: other
// requests share them.
func parseField(req *request, f openai.Field) (any, error) {
	raw := req.Raw(f)
	if raw == nil {
		return nil, nil
	}
	list, listed, err := req.Values(req.work, f)
	if err == nil && listed {
		return list, nil
	}
	var v any
	if err == nil {
		v, err = pyvalue.ParseWithin(req.work, raw)
	}
	if err != nil {
		return nil, refuse(Rejected)
	}
	return v, nil
}

// boolField reads a boolean. pydantic also takes 0, "yes" and the like; boolField leaves
// them to vLLM.
func boolField(req *request, f openai.Field, absent bool) (bool, error) {
	switch string(req.Raw(f)) {
	case "":
		return absent, nil
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, refuse(UnknownShape)
}

// textField reads a string; "" if it is absent or null.
func textField(req *request, f openai.Field) (string, error) {
	v, err := parseField(req, f)
	if v == nil || err != nil {
		return "", err
	}
	s, ok := v.(string)
	if !ok {
		return "", refuse(Rejected)
	}
	return s, nil
}

// dictField reads an object; nil if it is absent or null.
func dictField(req *request, f openai.Field) (*pyvalue.Dict, error) {
	v, err := parseField(req, f)
	if v == nil || err != nil {
		return nil, err
	}
	d, ok := v.(*pyvalue.Dict)
	if !ok {
		return nil, refuse(Rejected)
	}
	return d, nil
}

// listField reads an array; nil if it is absent or null.
func listField(req *request, f openai.Field) (*pyvalue.List, error) {
	v, err := parseField(req, f)
	if v == nil || err != nil {
		return nil, err
	}
	l, ok := v.(*pyvalue.List)
	if !ok {
		return nil, refuse(Rejected)
	}
	return l, nil
}

// str returns d[key] if it is a string, and "" if it is absent or null. ok is false for
// values of other types.
func str(d *pyvalue.Dict, key string) (s string, ok bool) {
	v, _ := d.GetString(key)
	if v == nil {
		return "", true
	}
	s, ok = v.(string)
	return s, ok
}

// has reports whether d has a value other than null at key.
func has(d *pyvalue.Dict, key string) bool {
	v, _ := d.GetString(key)
	return v != nil
}

// dict builds a Dict from pairs of key and value.
func dict(pairs ...any) *pyvalue.Dict {
	d := pyvalue.NewDictOf(len(pairs) / 2)
	for i := 0; i < len(pairs); i += 2 {
		d.Set(pairs[i], pairs[i+1])
	}
	return d
}

// only reports whether every key of d is one of allowed.
func only(d *pyvalue.Dict, allowed ...string) bool {
	for k := range d.All() {
		ok := false
		for _, a := range allowed {
			ok = ok || k == a
		}
		if !ok {
			return false
		}
	}
	return true
}
