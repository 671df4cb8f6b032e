package chat

import (
	"warmroute/render/internal/pyvalue"
	"warmroute/render/openai"
	"warmroute/render/work"
)

// request is a request and the budget that rendering it is charged to.
type request struct {
	*openai.Request
	work *work.Budget
}

// parseField reads a span of the body as Python's json does. A field that is
// absent or null is nil. What an array of messages holds must not be changed: other
// requests see it, too.
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

// boolField reads a boolean. pydantic also takes 0, "yes" and the like; those
// are left to vLLM.
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

// textField reads a string; "" when it is absent or null.
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

// dictField reads an object; nil when it is absent or null.
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

// listField reads an array; nil when it is absent or null.
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

// str gets d[key] when it is a string. ok is false when it is something else;
// absent and null are "" and ok.
func str(d *pyvalue.Dict, key string) (s string, ok bool) {
	v, _ := d.GetString(key)
	if v == nil {
		return "", true
	}
	s, ok = v.(string)
	return s, ok
}

// has reports whether d[key] is there and not null.
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

// only reports whether every key of d is one of the allowed.
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
