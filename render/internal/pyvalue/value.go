package pyvalue

import (
	"errors"
	"math"
	"math/big"

	"warmroute/render/work"
)

// Sentinel errors of this package, matched with errors.Is.
var (
	ErrSyntax       = errors.New("not valid JSON")
	ErrDuplicateKey = errors.New("an object repeats a key")
	ErrSurrogate    = errors.New("a string holds a lone surrogate")
	ErrUTF8         = errors.New("a string is not valid UTF-8")
	ErrDepth        = errors.New("values are nested too deeply")
	ErrDigits       = errors.New("an integer has more than 4300 digits")
	ErrAddress      = errors.New("the text of this value is a memory address")
	ErrType         = errors.New("wrong type")
	ErrCircular     = errors.New("a value contains itself")
)

// MaxDigits is CPython's default limit on decimal digits when an int is read
// from or printed as text (sys.get_int_max_str_digits).
const MaxDigits = 4300

// maxNesting bounds the recursion of Repr, Equal and Dumps. CPython stops near its
// recursion limit of 1000 frames, less its caller's frames.
const maxNesting = 900

// Object is a value of another package among Python values.
type Object interface {
	// PyType returns the type's name as Python prints it in messages.
	PyType() string
	// AppendRepr appends repr(v); p carries the state of nesting.
	AppendRepr(dst []byte, p *Printer) []byte
}

// Optional behaviours of an Object. Without them an Object is true, equal only
// to itself, hashed by identity, and its str() is its repr().
type (
	// A Truther has a bool(v) of its own.
	Truther interface{ PyTruth() bool }
	// An Equaler has a v == other of its own.
	Equaler interface {
		PyEqual(w *work.Budget, other any) bool
	}
	// A Hasher returns comparable Go values that are equal for equal keys; false: v is
	// unhashable.
	Hasher interface{ PyHash() (any, bool) }
	// A Stringer appends str(v).
	Stringer interface{ AppendStr(dst []byte) []byte }
	// A Texter is a subclass of str, and returns its text.
	Texter interface{ PyText() string }
)

// List is a Python list.
type List struct{ Items []any }

// NewList returns a list that holds items (not a copy).
func NewList(items ...any) *List { return &List{Items: items} }

// Tuple is a Python tuple; Parse never makes one.
type Tuple struct {
	Items []any
	Names []string // the field names of a named tuple
}

// NewTuple returns a tuple that holds items (not a copy).
func NewTuple(items ...any) *Tuple { return &Tuple{Items: items} }

var (
	minInt64 = big.NewInt(math.MinInt64)
	maxInt64 = big.NewInt(math.MaxInt64)
)

// Int returns b in its one form: int64 if it fits. It takes ownership of b.
func Int(b *big.Int) any {
	if b.Cmp(minInt64) >= 0 && b.Cmp(maxInt64) <= 0 {
		return b.Int64()
	}
	return b
}

// TypeName returns type(v).__name__.
func TypeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case *List:
		return "list"
	case *Tuple:
		return "tuple"
	case *Dict:
		return "dict"
	case Object:
		return v.PyType()
	}
	return "object"
}

// Text returns the text of a str or of a subclass of str.
func Text(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case Texter:
		return v.PyText(), true
	}
	return "", false
}

// Truth returns bool(v).
func Truth(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case *big.Int:
		return v.Sign() != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case *List:
		return len(v.Items) != 0
	case *Tuple:
		return len(v.Items) != 0
	case *Dict:
		return v.Len() != 0
	case Truther:
		return v.PyTruth()
	}
	return true
}
