package jinja

// markupWraps are the methods of Markup that return Markup.
var markupWraps = wordSet(`upper lower title capitalize casefold swapcase strip lstrip rstrip center ljust rjust zfill
	expandtabs translate removeprefix removesuffix split rsplit splitlines partition rpartition`)

// markupMethod returns the method of a Markup: it escapes text arguments, and its text
// results are Markup.
func markupMethod(m markup, name string) (any, bool) {
	switch name {
	case "join":
		return method(m, name, func(st *state, a *args) any {
			items := st.items(a.positional(name, 1, 1)[0])
			st.work.Make(32 * len(items))
			parts := make([]any, len(items))
			for i, v := range items {
				parts[i] = string(st.escape(v))
			}
			return markup(st.joinText(string(m), parts))
		}), true
	case "replace":
		return method(m, name, func(st *state, a *args) any {
			p := a.positional(name, 2, 3)
			count := -1
			if p[2] != absent {
				count = intArg(name, p[2])
			}
			return markup(st.replaceText(string(m), textArg(name, p[0]), string(st.escape(p[1])), count))
		}), true
	case "format", "format_map":
		return method(m, name, func(st *state, a *args) any {
			refuse("Markup.format")
			return nil
		}), true
	case "striptags", "unescape", "escape":
		return method(m, name, func(*state, *args) any {
			refuse("Markup." + name)
			return nil
		}), true
	}
	v, ok := textMethod(m, string(m), name)
	if !ok || !markupWraps[name] {
		return v, ok
	}
	fn := v.(*builtin)
	return method(m, name, func(st *state, a *args) any { return st.wrapMarkup(fn.fn(st, a)) }), true
}

func (st *state) wrapMarkup(v any) any {
	switch v := v.(type) {
	case string:
		return markup(v)
	case *list:
		for i := range v.Items {
			st.work.Step(2)
			st.work.Memory(16)
			v.Items[i] = st.wrapMarkup(v.Items[i])
		}
	case *tuple:
		for i := range v.Items {
			st.work.Step(2)
			st.work.Memory(16)
			v.Items[i] = st.wrapMarkup(v.Items[i])
		}
	}
	return v
}
