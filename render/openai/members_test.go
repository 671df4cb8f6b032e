package openai

import (
	"slices"
	"testing"
)

func TestMembers(t *testing.T) {
	for body, want := range map[string][]string{
		`{}`: nil,
		" {\"a\":1 ,\n \"b\\u0063\" : {\"x\":[{\"y\":2}]}, \"d\":\"}\" }\n": {`a="a":1`, `bc="b\u0063" : {"x":[{"y":2}]}`, `d="d":"}"`},
		bom + `{"a":[1,2]}`: {`a="a":[1,2]`},
	} {
		var got []string
		if err := Members(nil, []byte(body), func(key []byte, from, to int) { got = append(got, string(key)+"="+body[from:to]) }); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q: %v", body, got, want, err)
		}
	}
	for _, body := range []string{``, `[]`, `{"a":1`, `{"a":1}x`, `{"a":1,"a":2}`} {
		if err := Members(nil, []byte(body), func([]byte, int, int) {}); err == nil {
			t.Errorf("%q is read", body)
		}
	}
}

func TestOwnTransfer(t *testing.T) {
	for body, want := range map[string]bool{
		`{"model":"m","messages":[]}`: false, `{"model":"m","messages":[],"kv_transfer_params":null}`: true,
		`{"model":"m","messages":[{"kv_transfer_params":1}]}`: false, `{"model":"m","messages":[],"kv_transfer_p\u0061rams":{"a":1}}`: true,
	} {
		r, err := Parse(Chat, []byte(body))
		if err != nil || r.OwnTransfer() != want {
			t.Errorf("%s: %v", body, err)
		}
	}
}
