package browser

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile/inspect"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// strange are names and texts that a page has to show as they are.
var strange = []string{strings.Repeat("w", 253), "\u202egnp.exe", "\u0645\u0648\u0642\u0639-\u0661",
	`<script>document.title="escaped"</script>`, `"><img src=x onerror='document.title="escaped"'>`,
	strings.Repeat("0123456789abcdef.", 14)}

// TestBundle looks at a bundle that is cut off and has strange names and texts. Nothing escapes, and no page is wider
// than its window.
func TestBundle(t *testing.T) {
	ctx := newBrowser(t)
	b, err := inspect.ReadBundle(bytes.NewReader(strangeBundle(t)))
	require.ErrorContains(t, err, "it is cut off")
	server := httptest.NewServer(b.Handler())
	t.Cleanup(server.Close)
	shown := chromedp.WaitVisible("p.damage")
	takePictures(t, ctx, "bundle-overview", server.URL+"/", shown)
	takePictures(t, ctx, "bundle-keys", server.URL+"/keys?"+url.Values{"controller": {strange[2]}}.Encode(), shown)
	for i, name := range strange[:4] {
		query := url.Values{"controller": {strange[2]}, "namespace": {name}, "name": {name}}
		page := server.URL + "/key?" + query.Encode()
		if i < 2 {
			takePictures(t, ctx, fmt.Sprint("bundle-key-", i), page, shown)
		}
		do(t, ctx, chromedp.Navigate(page), shown)
		require.Equal(t, name+"/"+name, get(t, ctx,
			chromedp.Evaluate[string](`document.querySelector("h1 bdi").textContent`)))
		require.Equal(t, name+"/"+name, get(t, ctx, chromedp.Evaluate[string](`document.title`)))
	}
}

// strangeBundle returns a file in which strange is in every place, without its last line.
func strangeBundle(t *testing.T) []byte {
	var file bytes.Buffer
	zipped := gzip.NewWriter(&file)
	out := json.NewEncoder(zipped)
	write := func(kind string, value any) { require.NoError(t, out.Encode(map[string]any{kind: value})) }
	now := time.Now()
	controller, long := strange[2], strange[0]
	denied := &status.Error{Type: long, Reason: strange[3], Code: 403, Text: strings.Join(strange, " ")}
	m := status.Manager{At: now, Started: now.Add(-time.Hour), Stage: "Working", StageSince: now,
		Leadership: &status.Leadership{Lease: long, Identity: strange[1], Holder: long, NotReady: denied},
		Controllers: []status.Controller{{Name: controller, Workers: 5, Runs: 1234567, Failed: 3, Failing: 2},
			{Name: long, Workers: 1}, {Name: strange[4], Workers: 1}}}
	for _, name := range strange {
		m.Informers = append(m.Informers, status.Informer{Name: name, State: "Stale", Since: now,
			Reason:          denied,
			ResourceVersion: "48213377", Namespaces: []status.Namespace{{Name: name, State: name}}})
		m.Controllers[0].Recent = append(m.Controllers[0].Recent, status.RunSummary{Namespace: name, Name: name,
			Started: now, Result: name})
	}
	write("bundle", map[string]any{"version": 1, "created": now})
	write("manager", m)
	var keys []status.KeySummary
	for _, name := range strange {
		keys = append(keys, status.KeySummary{Namespace: name, Name: name, State: status.KeyFailed,
			LastResult: name})
	}
	write("keys", map[string]any{"controller": controller, "keys": keys})
	for _, name := range strange {
		cause := []status.Cause{{Source: "Owns " + name, Namespace: name, Name: name,
			ResourceVersion: "48213377"}}
		debt := []status.Debt{{Kind: "change", Informer: name, Namespace: name, Name: name,
			CacheState:  "Stale",
			CacheReason: denied, Since: now}}
		write("key", status.Key{At: now, Controller: controller, Namespace: name, Name: name, State: "Failed",
			Why: name + " rests because of " + strings.Join(strange, " "), Group: name, Causes: cause, Debts: debt,
			Objects: []status.Object{{Informer: name, Exists: true, Invalid: denied,
				Owner: &status.Owner{Kind: name, Name: name}}},
			Runs: []status.Run{{Started: now.Add(-time.Second), Took: time.Millisecond, Result: "terminal",
				Error: denied, Where: name, Causes: cause,
				Writes: []status.Write{{Verb: "patch", Resource: name, Namespace: name, Name: name,
					Error: denied,
					Paths: []string{name, strange[0]}}}}}})
	}
	require.NoError(t, zipped.Close())
	return file.Bytes()
}
