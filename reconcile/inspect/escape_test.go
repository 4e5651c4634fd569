package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// strange is a sample in which every text that comes from outside is the given one.
func strange(text string) *sample {
	s := newSample(1, func(int) string { return text })
	e := &status.Error{Type: text, Reason: text, Code: 409, Text: text}
	m := &s.m
	m.WaitsFor, m.NotHealthy, m.NotReady = text, []string{text}, []string{text}
	m.Controllers[0].Name, m.Controllers[0].Sources = text, []string{"For " + text}
	m.Controllers[0].Recent[0].Name, m.Controllers[0].Recent[0].Namespace = text, text
	m.Informers[0].Name, m.Informers[0].ResourceVersion, m.Informers[0].Reason = text, text, e
	m.Informers[1].Namespaces[0].Name = text
	m.Leadership = &status.Leadership{Lease: text, Identity: text, Holder: text, Handover: text, NotReady: e}
	s.list[0].Namespace, s.list[0].Group, s.list[0].LastResult = text, text, text
	k := sampleKey(s.list[0])
	k.Controller, k.Why, k.Group = text, text, text
	k.Objects = append(k.Objects, status.Object{Informer: text, ResourceVersion: text, Invalid: e})
	k.HotLoop = &status.HotLoop{Repeats: 3, Changing: text}
	k.Debts[0].Name, k.Debts[0].Informer, k.Debts[0].CacheReason = text, text, e
	r := &k.Runs[0]
	r.Result, r.Error, r.Where, r.Request = text, e, text, &status.Request{Method: text, Resource: text}
	r.Causes[0].Source, r.Causes[1].Name, r.Causes[1].Source = text, text, "Owns "+text
	r.Writes[0] = status.Write{Verb: text, Resource: text, Subresource: text, Namespace: text, Name: text,
		Paths: []string{text}, Error: e, ResourceVersion: text}
	r.Waits[0].For, r.Waits[0].Debts = status.WaitReason(text), k.Debts
	s.details = map[reconcile.Key]status.Key{{Namespace: text, Name: text}: k}
	return s
}

// filled is a sample in which every text there is has been replaced by the given one, states and the like included, as
// in a bundle that somebody has made. Each list has an element and each pointer a value, so new fields are in it, too.
func filled(text string, yes bool) *sample {
	s := &sample{details: make(map[reconcile.Key]status.Key), list: make([]status.KeySummary, 1)}
	var k status.Key
	for _, v := range []any{&s.m, &s.list[0], &k} {
		fill(reflect.ValueOf(v).Elem(), text, yes)
	}
	s.details[reconcile.Key{Namespace: text, Name: text}] = k
	return s
}

func fill(v reflect.Value, text string, yes bool) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(yes)
	case reflect.Int, reflect.Int64:
		v.SetInt(500)
	case reflect.Uint64:
		v.SetUint(500)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), text, yes)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), text, yes)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(ago(time.Minute)))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), text, yes)
		}
	default:
		panic(v.Kind())
	}
}

// strangeSources are what pages are made of, with a text in all places.
func strangeSources(text string) map[string]source {
	all := map[string]source{"strange": strange(text), "filled": filled(text, false), "yes": filled(text, true)}
	s := filled(text, true)
	all["bundle"] = &Bundle{Created: sampleTime, Manager: s.m, Keys: map[string][]status.KeySummary{text: s.list},
		Details: map[string]map[reconcile.Key]status.Key{text: s.details}, damage: errors.New(text)}
	return all
}

var (
	tags       = regexp.MustCompile(`<[^>]*>`)
	attributes = regexp.MustCompile(`="[^"]*"`)
)

// structure returns a page's tags in their order, without the values of attributes.
func structure(html string) (all []string) {
	for _, tag := range tags.FindAllString(html, -1) {
		all = append(all, attributes.ReplaceAllString(tag, `=""`))
	}
	return all
}

// pagesOf returns the pages of strange sources, and their data.
func pagesOf(t testing.TB, text string) (html map[string]string, data []any) {
	html = make(map[string]string)
	h := newHandler(Options{Actions: true}, nil)
	for kind, s := range strangeSources(text) {
		for name, query := range map[string]url.Values{"index": {}, "keys": {"search": {text}},
			"key": {"namespace": {text}, "name": {text}}} {
			query.Set("controller", text)
			v, status := h.view(context.Background(), s, name, query)
			require.Equal(t, http.StatusOK, status, v.problem)
			f, err := h.frame(s, v, query)
			require.NoError(t, err)
			var b strings.Builder
			require.NoError(t, templates.ExecuteTemplate(&b, "frame", f))
			html[kind+" "+name], data = b.String(), append(data, v.data)
		}
	}
	return html, data
}

// TestNoSentenceIsTurnedAround: a character that turns the direction of a line turns no more than the name it is in.
func TestNoSentenceIsTurnedAround(t *testing.T) {
	html, _ := pagesOf(t, "\u202egnp.exe")
	for name, page := range html {
		for _, part := range regexp.MustCompile(`(?s)<p class="(why|damage)">.*?</p>|<ul class="notices">.*?</ul>`).
			FindAllString(page, -1) {
			require.NotContains(t, part, "\u202e", name)
			require.Contains(t, part, "\uFFFDgnp.exe", name)
		}
	}
}

// FuzzPage puts a text into every place of a page that a text from outside can reach. The page's tags are the same as
// for a plain text.
func FuzzPage(f *testing.F) {
	for _, seed := range []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, "javascript:alert(1)",
		"</title></svg></template>", "--><!--", "a\r\n\r\ndata: x", "\u202egnp.exe", "\x00\x1b[2J", "{{.}}", "${1}",
		"\\u003cscript\\u003e", "a&amp;b=c#d?e/../../f%2e%2e", strings.Repeat("w", 253), "א", "]]>", "\u2028",
		"\xff\xfe",
	} {
		f.Add(seed)
	}
	plain, _ := pagesOf(f, "plain")
	words := regexp.MustCompile("^[A-Za-z]+($| )")
	f.Fuzz(func(t *testing.T, text string) {
		if text == "" || !utf8.ValidString(text) {
			text += "x"
		}
		if words.MatchString(text) {
			return // it may be the name of a state, which a page shows in another way
		}
		html, data := pagesOf(t, text)
		for name, page := range html {
			require.Equal(t, structure(plain[name]), structure(page), name)
			require.NotContains(t, page, "ZgotmplZ")
		}
		for _, d := range data {
			if utf8.ValidString(text) {
				text, err := json.Marshal(d)
				require.NoError(t, err)
				require.True(t, json.Valid(text))
				require.NotContains(t, string(text), "<")
			}
		}
	})
}
