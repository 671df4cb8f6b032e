package tokens

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"warmroute/render/openai"
	"warmroute/render/testkit/must"
)

const settingTemplate = `{% if thinking %}{{ style }}{% endif %}{% if tools %}{{ tools | tojson }}{% endif %}` +
	`{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ reasoning_effort }}{{ color }}`

// compareAll compares what requests have set aside.
func compareSamples(t *testing.T, l *Local) (n int) {
	t.Helper()
	for ; len(l.samples) > 0; n++ {
		l.compare(t.Context(), <-l.samples)
	}
	return n
}

// Flags of a server may give single values of a request another meaning. No start-up
// conversation has each value, so ids are used only after a replica has confirmed the value.
func TestAValueIsConfirmedBeforeItsIDsAreUsed(t *testing.T) {
	hello := `"messages":[{"role":"user","content":"Hello"}]`
	tools := `,"tools":[{"type":"function","function":{"name":"f"}}]`
	effortMap := Flags{EffortMap: map[string]string{"medium": "low", "max": "mighty"}}
	for name, tt := range map[string]struct {
		flags       Flags
		route       openai.Route
		wrong, fine string // bodies, of which the flags change the first alone
	}{
		"effort":           {effortMap, openai.Chat, hello + `,"reasoning_effort":"medium"`, hello + `,"reasoning_effort":"high"`},
		"effort elsewhere": {effortMap, openai.Chat, hello + `,"reasoning_effort":"max"`, hello + `,"reasoning_effort":"minimal"`},
		"responses":        {effortMap, openai.Responses, `"input":"x","reasoning":{"effort":"medium"}`, `"input":"x","reasoning":{"effort":"xhigh"}`},
		"messages":         {effortMap, openai.Messages, hello + `,"output_config":{"effort":"medium"}`, hello + `,"output_config":{"effort":"high"}`},
		"default kwargs": {Flags{DefaultKwargs: json.RawMessage(`{"style":"long"}`)}, openai.Chat,
			hello + `,"chat_template_kwargs":{"thinking":true}`, hello + `,"chat_template_kwargs":{"thinking":false,"color":"red"}`},
		"tool choice": {Flags{ExcludeTools: true}, openai.Chat, hello + tools + `,"tool_choice":"none"`,
			hello + tools + `,"tool_choice":"auto","chat_template_kwargs":{"color":"red"}`},
		"disabled thinking": {Flags{DisabledThinkingEffort: "low"}, openai.Messages, hello + `,"thinking":{"type":"disabled"}`,
			hello + `,"output_config":{"effort":"high"}`},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeServer(t)
			f.answer = answers(t, bytesModel(t, settingTemplate, tt.flags), false)
			var log bytes.Buffer
			l, seen := newLocal(t, f, LocalOptions{SampleEvery: -1, Log: slog.New(slog.NewTextHandler(&log, nil))})
			l.Unload("m")
			must.Do(t, l.Load("m", bytesModel(t, settingTemplate, Flags{DisabledThinkingEffort: "none"})))
			l.CheckAll(t.Context())
			request := func(body string) error {
				_, err := l.Tokens(t.Context(), parse(t, tt.route, `{"model":"m","max_tokens":9,`+body+`}`), someModel)
				return err
			}
			for _, body := range []string{tt.wrong, tt.fine} {
				if err := request(body); !errors.Is(err, ErrNone) {
					t.Fatalf("%v before a replica has confirmed %s", err, body)
				}
				_ = request(body)
				if n := compareSamples(t, l); n > 1 {
					t.Errorf("%d comparisons of one value", n)
				}
			}
			for range 2 {
				if err := request(tt.wrong); !errors.Is(err, ErrNone) {
					t.Errorf("%v after a replica has contradicted", err)
				}
				if err := request(tt.fine); err != nil {
					t.Errorf("%v after a replica has confirmed; %v %+v", err, seen.refused, l.Status())
				}
			}
			if n := compareSamples(t, l); n != 0 {
				t.Errorf("%d more comparisons", n)
			}
			if s := state(l, tt.route.Feature()); s.State != "trusted" {
				t.Errorf("the route is %+v", s)
			}
			demoted := l.Status()[0].Demoted
			if len(demoted) != 1 || demoted[0].Feature != "setting" || demoted[0].Differs != 1 || !slices.Contains(seen.demoted, "setting") {
				t.Errorf("the settings are %+v; %v", demoted, seen.demoted)
			}
			if strings.Count(log.String(), "for one value of a setting") > 1 || strings.Contains(log.String(), "Hello") {
				t.Error(log.String())
			}
		})
	}
}

// A value is confirmed by a request where the template may read it: it may read it for requests
// without tools alone, or for those whose answer begins.
func TestAValueIsConfirmedWhereItIsRead(t *testing.T) {
	const template = `{% if add_generation_prompt and not tools %}{{ reasoning_effort }}{% endif %}{{ messages[0].content }}`
	_, l, _ := differing(t, bytesModel(t, template, Flags{}), bytesModel(t, template, Flags{EffortMap: map[string]string{"medium": "low"}}))
	for _, unread := range []string{`,"tools":[{"type":"function","function":{"name":"f"}}]`, `,"add_generation_prompt":false`, ``} {
		body := `{"model":"m","messages":[{"role":"user","content":"x"}],"reasoning_effort":"medium"` + unread + `}`
		for range 2 { // the first one asks a replica
			_, err := l.Tokens(t.Context(), parse(t, openai.Chat, body), someModel)
			if asked := compareSamples(t, l); asked == 0 && (err == nil) != (unread != "") {
				t.Errorf("%s: %v", body, err)
			}
		}
	}
}

// A kwarg that the template does not read changes no prompt, and costs no comparison.
func TestAnUnreadKwargNeedsNoConfirmation(t *testing.T) {
	_, l, _ := differing(t, bytesModel(t, settingTemplate, Flags{}), bytesModel(t, settingTemplate, Flags{}))
	body := `{"model":"m","messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"session":"4711","color":null}}`
	if _, err := l.Tokens(t.Context(), parse(t, openai.Chat, body), someModel); err != nil {
		t.Error(err)
	}
}

// Clients choose settings, so their number is bounded: a new one takes the place of one
// that no request had for settingRest.
func TestSettingsAreBounded(t *testing.T) {
	var s settings
	now := time.Unix(1e9, 0)
	for i := range uint64(mostSettings) {
		if !s.asks(i+1, now) || s.asks(i+1, now) {
			t.Fatalf("setting %d is asked about not once", i)
		}
	}
	s.set(7, settingEqual, now)
	if s.asks(1<<40, now) || s.equal(1<<40, now) {
		t.Error("a setting too many")
	}
	now = now.Add(settingRest)
	if !s.equal(7, now) {
		t.Error("a confirmed setting is forgotten")
	}
	for i := range uint64(3 * mostSettings) {
		s.asks(1<<40+i, now)
	}
	if n := len(*s.known.Load()); n != mostSettings || !s.equal(7, now) {
		t.Errorf("%d settings; %v", n, fmt.Sprint(s.equal(7, now)))
	}
	if !s.asks(1<<40, now.Add(settingRest)) {
		t.Error("a setting without an answer is not asked about again")
	}
	s.reset()
	if s.equal(7, now) {
		t.Error("known after a reset")
	}
}
