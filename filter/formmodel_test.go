package filter

import (
	"bytes"
	"mime/multipart"
	"strings"
	"testing"

	"warmroute/render/testkit/must"
)

const formKind = "multipart/form-data; boundary=b"

func part(head, value string) string {
	return "--b\r\nContent-Disposition: form-data; " + head + "\r\n\r\n" + value + "\r\n"
}

func TestFormModel(t *testing.T) {
	file := part(`name="file"; filename="a.wav"`+"\r\nContent-Type: audio/wav", strings.Repeat("\x00\r\n--a", 5000))
	for name, tt := range map[string]struct{ kind, body, want string }{
		"before the file":             {formKind, part(`name="model"`, "whisper") + file + "--b--", "whisper"},
		"behind the file":             {formKind, file + part(`name="model"`, "org/whisper-1") + "--b--\r\n", "org/whisper-1"},
		"without quotes":              {formKind, part(`name=model`, "whisper") + "--b--", "whisper"},
		"boundary in quotes":          {`Multipart/Form-Data; charset=utf-8; boundary="b"`, part(`name="model"`, "w") + "--b--", "w"},
		"boundary lacks its quotes":   {"multipart/form-data; boundary==_b/c; charset=x", strings.ReplaceAll(part(`name="model"`, "w"), "--b", "--=_b/c") + "--=_b/c--", "w"},
		"the last counts":             {formKind, part(`name="model"`, "a") + part(`name="model"`, "b") + "--b--", "b"},
		"a transfer encoding":         {formKind, part("name=\"model\"\r\nContent-Transfer-Encoding: quoted-printable", "a=3Db") + "--b--", "a=3Db"},
		"none":                        {formKind, file + "--b--", ""},
		"empty":                       {formKind, "", ""},
		"another name":                {formKind, part(`name="model_path"`, "x") + "--b--", ""},
		"not UTF-8":                   {formKind, part(`name="model"`, "\xff") + "--b--", ""},
		"too long":                    {formKind, part(`name="model"`, strings.Repeat("x", maxModelName+1)) + "--b--", ""},
		"cut behind the model":        {formKind, part(`name="model"`, "whisper") + file[:1000], "whisper"},
		"cut in the model":            {formKind, part(`name="model"`, "whisper")[:60], ""},
		"another boundary":            {"multipart/form-data; boundary=c", part(`name="model"`, "w") + "--b--", ""},
		"no boundary":                 {"multipart/form-data", part(`name="model"`, "w") + "--b--", ""},
		"a content type that is none": {"multipart/form-data; boundary=", part(`name="model"`, "w") + "--b--", ""},
		"too many parts":              {formKind, strings.Repeat(part(`name="x"`, ""), maxFormParts) + part(`name="model"`, "w") + "--b--", ""},
	} {
		if got := formModel(tt.kind, []byte(tt.body)); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// FuzzFormModel: whatever else a form has around it, a model between its boundaries is read,
// and no form panics.
func FuzzFormModel(f *testing.F) {
	f.Add("whisper", []byte("RIFF"), formKind, []byte(part(`name="model"`, "w")+"--b--"))
	f.Add("a\r\nb", []byte("\r\n--"), "multipart/form-data; boundary=\"\"", []byte("--"))
	f.Fuzz(func(t *testing.T, model string, file []byte, kind string, body []byte) {
		formModel(kind, body)
		var b bytes.Buffer
		w := multipart.NewWriter(&b)
		for _, one := range []struct {
			name  string
			value []byte
		}{{"file", file}, {"model", []byte(model)}, {"after", file}} {
			p := must.Get(w.CreateFormField(one.name))(t)
			_, _ = p.Write(one.value)
		}
		_ = w.Close()
		if got := formModel(w.FormDataContentType(), b.Bytes()); got != modelName([]byte(model)) {
			t.Errorf("%q, want %q", got, model)
		}
	})
}
