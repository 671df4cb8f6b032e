package jinja

import (
	"html"
	"regexp"
	"sort"
	"strings"

	"github.com/dlclark/regexp2"

	"warmroute/internal/pyvalue"
)

func unescapeHTML(s string) string { return html.UnescapeString(s) }

// stripTags is Markup.striptags.
func stripTags(s string) string {
	for {
		start := strings.Index(s, "<!--")
		if start < 0 {
			break
		}
		end := strings.Index(s[start:], "-->")
		if end < 0 {
			break
		}
		s = s[:start] + s[start+end+3:]
	}
	for {
		start := strings.IndexByte(s, '<')
		if start < 0 {
			break
		}
		end := strings.IndexByte(s[start:], '>')
		if end < 0 {
			break
		}
		s = s[:start] + s[start+end+1:]
	}
	return unescapeHTML(strings.Join(pyvalue.Fields(s, -1), " "))
}

func filterStripTags(st *state, v any, a *args) any {
	a.positional("striptags", 0, 0)
	s := st.str(v)
	st.charge(len(s) * (1 + strings.Count(s, "<")))
	return stripTags(s)
}

// quoteURL is urllib's quote_from_bytes with Jinja's safe characters.
func quoteURL(s string, query bool) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || isDigit(c) || strings.IndexByte("_.-~", c) >= 0 || c == '/' && !query:
			b.WriteByte(c)
		case c == ' ' && query:
			b.WriteByte('+')
		default:
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
	return b.String()
}

func filterURLEncode(st *state, v any, a *args) any {
	a.positional("urlencode", 0, 0)
	quote := func(v any, query bool) string {
		if b, ok := v.(bytesVal); ok {
			return quoteURL(string(b), query)
		}
		return quoteURL(st.str(v), query)
	}
	if s, ok := pyvalue.Text(v); ok {
		st.charge(3 * len(s))
		return quoteURL(s, false)
	}
	var it iterator
	if d, ok := v.(*dict); ok {
		it = st.iterate(&dictView{d: d, kind: "dict_items"})
	} else if it, ok = st.iterateOK(v); !ok {
		return quote(v, false)
	}
	var pairs []string
	for {
		x, ok := it.next()
		if !ok {
			return strings.Join(pairs, "&")
		}
		st.step()
		kv := st.unpack(x, 2)
		pairs = append(pairs, quote(kv[0], true)+"="+quote(kv[1], true))
	}
}

func filterXMLAttr(st *state, v any, a *args) any {
	p := a.bind("xmlattr", 0, "autospace")
	d, ok := v.(*dict)
	if !ok {
		defined(v)
		typeError("'%s' object has no attribute 'items'", pyvalue.TypeName(v))
	}
	var parts []string
	for k, v := range d.All() {
		if _, undef := v.(*undefined); v == nil || undef {
			continue
		}
		if strings.ContainsAny(textArg("xmlattr", k), " \t\n\r\f\v/>=") {
			valueError("Invalid character in attribute name")
		}
		parts = append(parts, string(st.escape(k))+`="`+string(st.escape(v))+`"`)
	}
	s := strings.Join(parts, " ")
	if s != "" && (p[0] == absent || truth(p[0])) {
		s = " " + s
	}
	return s
}

// Python's \w and \d are Unicode; Go's are not.
const pyWord = `\p{L}\p{N}_`

var (
	urlHTTP = regexp.MustCompile(`(?i)^((https?://|www\.)(([` + pyWord + `%-]+\.)+)?([a-z]{2,63}|xn--[` + pyWord + `%]{2,59})` +
		`|([` + pyWord + `%-]{2,63}\.)+(com|net|int|edu|gov|org|info|mil)` +
		`|(https?://)((([\p{Nd}]{1,3})(\.[\p{Nd}]{1,3}){3})|(\[([\p{Nd}a-f]{0,4}:){2}([\p{Nd}a-f]{0,4}:?){1,6}\])))` +
		`(?::[\p{Nd}]{1,5})?(?:[/?#]\S*)?\n?$`)
	urlEmail = regexp.MustCompile(`^\S+@[` + pyWord + `][` + pyWord + `.-]*\.[` + pyWord + `]+\n?$`)
	urlHead  = regexp.MustCompile(`^([(<]|&lt;)+`)
	urlTail  = regexp.MustCompile(`([)>.,\n]|&gt;)+$`)
	schemeRE = regexp.MustCompile(`^[` + pyWord + `.+-]{2,}:/{0,2}$`)
)

func filterURLize(st *state, v any, a *args) any {
	p := a.bind("urlize", 0, "trim_url_limit", "nofollow", "target", "rel", "extra_schemes")
	u := &urlizer{limit: -1}
	if p[0] != absent && p[0] != nil {
		u.limit = intArg("urlize", p[0])
	}
	rel := map[string]bool{"noopener": true}
	if p[3] != absent && truth(p[3]) {
		for _, r := range pyvalue.Fields(textArg("urlize", p[3]), -1) {
			rel[r] = true
		}
	}
	if given(p[1]) {
		rel["nofollow"] = true
	}
	var rels []string
	for r := range rel {
		rels = append(rels, r)
	}
	sort.Strings(rels)
	u.attrs = ` rel="` + string(st.escape(strings.Join(rels, " "))) + `"`
	if p[2] != absent && truth(p[2]) {
		u.attrs += ` target="` + string(st.escape(p[2])) + `"`
	}
	if p[4] != absent && truth(p[4]) {
		for _, s := range st.items(p[4]) {
			scheme := textArg("urlize", s)
			if !schemeRE.MatchString(scheme) {
				fail(ErrRuntime, "not a valid URI scheme prefix")
			}
			u.schemes = append(u.schemes, scheme)
		}
	}
	text := string(st.escape(v))
	st.charge(8 * len(text))
	var b strings.Builder
	for text != "" {
		end := strings.IndexFunc(text, pyvalue.IsSpace)
		if end < 0 {
			end = len(text)
		}
		b.WriteString(u.word(text[:end]))
		text = text[end:]
		rest := pyvalue.LStrip(text)
		b.WriteString(text[:len(text)-len(rest)])
		text = rest
	}
	return b.String()
}

type urlizer struct {
	limit   int // of the shown text; -1: none
	attrs   string
	schemes []string
}

func (u *urlizer) trim(s string) string {
	if u.limit >= 0 && pyvalue.Len(s) > u.limit {
		return s[:byteOffset(s, u.limit)] + "..."
	}
	return s
}

func (u *urlizer) word(word string) string {
	head := urlHead.FindString(word)
	middle := word[len(head):]
	tail := urlTail.FindString(middle)
	middle = middle[:len(middle)-len(tail)]
	for _, pair := range [][2]string{{"(", ")"}, {"<", ">"}, {"&lt;", "&gt;"}} {
		opens := strings.Count(middle, pair[0])
		if opens <= strings.Count(middle, pair[1]) {
			continue
		}
		for range min(opens, strings.Count(tail, pair[1])) {
			end := strings.Index(tail, pair[1]) + len(pair[1])
			middle += tail[:end]
			tail = tail[end:]
		}
	}
	return head + u.link(middle) + tail
}

func (u *urlizer) link(s string) string {
	switch {
	case urlHTTP.MatchString(s):
		target := s
		if !strings.HasPrefix(s, "https://") && !strings.HasPrefix(s, "http://") {
			target = "https://" + s
		}
		return `<a href="` + target + `"` + u.attrs + `>` + u.trim(s) + `</a>`
	case strings.HasPrefix(s, "mailto:") && urlEmail.MatchString(s[7:]):
		return `<a href="` + s + `">` + s[7:] + `</a>`
	case strings.Contains(s, "@") && !strings.HasPrefix(s, "www.") && !strings.HasPrefix(s, "@") &&
		!strings.Contains(s, ":") && urlEmail.MatchString(s):
		return `<a href="mailto:` + s + `">` + s + `</a>`
	}
	for _, scheme := range u.schemes {
		if s != scheme && strings.HasPrefix(s, scheme) {
			s = `<a href="` + s + `"` + u.attrs + `>` + s + `</a>`
		}
	}
	return s
}

// wrapChunk is textwrap's way to split a line where it may be wrapped: at
// whitespace, after hyphens inside words, around long dashes.
var wrapChunk = regexp2.MustCompile(`[\t\n\v\f\r ]+`+
	`|(?<=[\w!"'&.,?])-{2,}(?=\w)`+
	`|[^\t\n\v\f\r ]+?(?:-(?:(?<=[^\d\W]{2}-)|(?<=[^\d\W]-[\w!"'&.,?]-))(?=[^\d\W]-?[^\d\W])`+
	`|(?=[\t\n\v\f\r ]|\z)|(?<=[\w!"'&.,?])(?=-{2,}\w))`, regexp2.None)

func chunks(line string, hyphens bool) []string {
	var out []string
	if hyphens {
		for m, _ := wrapChunk.FindStringMatch(line); m != nil; m, _ = wrapChunk.FindNextMatch(m) {
			out = append(out, m.String())
		}
		return out
	}
	isSpace := func(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }
	for start := 0; start < len(line); {
		end := start
		for end < len(line) && isSpace(line[end]) == isSpace(line[start]) {
			end++
		}
		out = append(out, line[start:end])
		start = end
	}
	return out
}

func filterWordWrap(st *state, v any, a *args) any {
	p := a.bind("wordwrap", 0, "width", "break_long_words", "wrapstring", "break_on_hyphens")
	width, breakLong, sep, hyphens := 79, true, "\n", true
	if p[0] != absent {
		width = sizeArg("wordwrap", p[0])
	}
	if p[1] != absent {
		breakLong = truth(p[1])
	}
	if p[2] != absent && p[2] != nil {
		sep = textArg("wordwrap", p[2])
	}
	if p[3] != absent {
		hyphens = truth(p[3])
	}
	s, ok := pyvalue.Text(v)
	if !ok {
		defined(v)
		typeError("'%s' object has no attribute 'splitlines'", pyvalue.TypeName(v))
	}
	st.charge(16 * len(s))
	var out []string
	for _, line := range pyvalue.SplitLines(s, false) {
		if width <= 0 {
			valueError("invalid width %d (must be > 0)", width)
		}
		out = append(out, strings.Join(wrap(chunks(line, hyphens), width, breakLong, hyphens), sep))
	}
	return strings.Join(out, sep)
}

// wrap is textwrap's _wrap_chunks with drop_whitespace.
func wrap(words []string, width int, breakLong, hyphens bool) []string {
	var lines []string
	for len(words) > 0 {
		if pyvalue.Strip(words[0]) == "" && len(lines) > 0 {
			words = words[1:]
			if len(words) == 0 {
				break
			}
		}
		var line []string
		n := 0
		for len(words) > 0 && n+pyvalue.Len(words[0]) <= width {
			n += pyvalue.Len(words[0])
			line = append(line, words[0])
			words = words[1:]
		}
		if len(words) > 0 && pyvalue.Len(words[0]) > width {
			switch {
			case breakLong:
				cut := longCut(words[0], width-n, hyphens)
				line = append(line, words[0][:cut])
				words = append([]string{words[0][cut:]}, words[1:]...)
			case len(line) == 0:
				line = append(line, words[0])
				words = words[1:]
			}
		}
		if k := len(line); k > 0 && pyvalue.Strip(line[k-1]) == "" {
			line = line[:k-1]
		}
		if len(line) > 0 {
			lines = append(lines, strings.Join(line, ""))
		}
	}
	return lines
}

// longCut is where a word longer than the line is broken, in bytes.
func longCut(word string, space int, hyphens bool) int {
	cut := byteOffset(word, space)
	if hyphens && pyvalue.Len(word) > space {
		if h := strings.LastIndexByte(word[:cut], '-'); h > 0 && strings.Trim(word[:h], "-") != "" {
			return h + 1
		}
	}
	return cut
}
