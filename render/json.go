package render

import "warmroute/render/internal/pyvalue"

// AppendJSON appends a JSON document as Python's json.dumps(json.loads(document),
// ensure_ascii=False) prints it (CPython 3.12): numbers in Python's forms, keys in the
// document's order, a space after each comma and colon. The error names the place where
// the document stops being JSON, or says that it repeats a key, has half of a surrogate
// pair or is not UTF-8: Python's servers treat these in different ways.
func AppendJSON(dst, document []byte) ([]byte, error) {
	v, err := pyvalue.Parse(document)
	if err != nil {
		return dst, err
	}
	o := pyvalue.DefaultDumps()
	o.EnsureASCII = false
	return pyvalue.AppendDumps(dst, v, o)
}
