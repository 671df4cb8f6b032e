// Package jinja renders chat templates as Python does: Jinja2 3.1.6 in the environment
// that transformers builds for apply_chat_template. That is
// ImmutableSandboxedEnvironment with trim_blocks, lstrip_blocks, loop controls (break,
// continue), the generation tag, tojson without HTML escaping, raise_exception and
// strftime_now.
//
// Compile turns a template into closures once; a Template is immutable and safe for
// concurrent use. Render either appends the bytes that Python produces, or fails where
// Python raises; it never guesses.
//
// Names follow Jinja's own scoping rules (symbols.go). Undefined values follow Jinja;
// arithmetic, formatting and string methods follow CPython 3.12.
//
// Limits (see Limits): nested calls are counted in Python frames and fail at CPython's
// recursion limit. Steps and bytes of output are bounded; an operation that builds a
// large value is charged before it builds the value. So no template and no request
// stops the process or occupies it for longer than the step limit allows. Compile
// bounds the nesting of a template.
//
// Some features are refused with ErrUnsupported and the feature's name (Refused),
// because none of a hundred published chat templates uses them. Compile refuses the
// tags filter, block, autoescape, extends, include, import and from, the name self, and
// a macro's argument caller. Render refuses the filters pprint, urlize, wordwrap, xmlattr,
// striptags, urlencode, filesizeformat, groupby, batch and slice, the globals cycler
// and joiner, str.translate and str.maketrans. Render also refuses features whose text
// cannot be predicted: memory addresses (printing a generator or a method), the random
// filter and lipsum, complex numbers, ranges beyond 64 bits, methods that make bytes of
// numbers, and Markup.format. \N{...} and surrogate escapes in strings do not compile.
//
// Known differences from CPython: two NaNs at equal positions of two lists compare as
// different even when they are one object; `is sameas` compares small values by value;
// recursion that comes within a few frames of CPython's limit may fail on one side
// only, since the limit includes the server's stack.
//
// Errors are of a closed set of kinds (errors.go). Error() never quotes values; Detail
// returns Python's message, which may quote the request.
package jinja
