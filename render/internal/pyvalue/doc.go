// Package pyvalue holds JSON documents as Python values, and prints them byte for byte
// as a Python server does.
//
// A value is one of: nil (None), bool, int64, *big.Int (only outside int64),
// float64, string, *List, *Tuple and *Dict; other packages add their own types
// by implementing Object. Strings are valid UTF-8 and stand for Python's
// sequences of code points.
//
// Invariants: an integer has one form (int64 when it fits), a Dict keeps
// insertion order and treats keys that Python calls equal (1, 1.0, True) as
// one key.
//
// Parse is json.loads, Dumps is json.dumps, Repr and Str are repr() and str(),
// Equal, Less and Truth are Python's ==, < and bool(); text.go has the str
// methods. Behaviour is CPython's 3.12, with Unicode 15.0.
//
// Values are safe for concurrent reading, not for concurrent changes. Strings made by
// Parse may alias its input, which must not change while they are in use.
//
// Duplicate keys, lone surrogates and invalid UTF-8 are errors, each of its own kind,
// because servers treat them differently. Memory addresses are not printed. There are
// no bytes, sets or complex numbers.
package pyvalue
