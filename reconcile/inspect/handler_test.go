package inspect

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

func webName(i int) string { return fmt.Sprintf("web-%d", i) }

// answering serves a source below /debug/inspect/ and returns the address of its pages.
func answering(t testing.TB, opts Options, s source) string {
	mux := http.NewServeMux()
	mux.Handle("/debug/inspect/", newHandler(opts, func(*http.Request) source { return s }))
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL + "/debug/inspect/"
}

// do makes a request; headers are name, value, name, value.
func do(t testing.TB, method, address, body string, headers ...string) (*http.Response, string) {
	req, err := http.NewRequest(method, address, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(text)
}

func TestPages(t *testing.T) {
	root := answering(t, Options{}, newSample(120, webName))
	for path, want := range map[string][]string{
		"": {"<h1><bdi>web</bdi>, <bdi>db</bdi>", "web: 2 keys fail", "1,234,567",
			"The cache of pods has been stale for 1 min 15 s: Forbidden (403)",
			"web-7d4b9-x2x9p", "for 1 d 2 h", `data-label="By metadata">10,007</td>`,
			`data-label="Heap">31.4 MB</td>`,
			`href="key?controller=web&amp;name=web-0&amp;namespace=default"`},
		"keys?controller=web":                     {"default/web-0", "stuck", "1–50 of 120", `rel="next"`, "42 min"},
		"keys?controller=web&search=SHOP%2Fweb-1": {"shop/web-1", "(the controller has 120)"},
		"keys?controller=web&state=BackingOff":    {"default/web-9", "1–1 of 1", "backing off <b>1</b>"},
		"keys?controller=web&sort=name&p=3":       {"101–120 of 120", `rel="prev"`},
		"key?controller=web&namespace=default&name=web-15": {"waits since 3.2 s: its last run created pod",
			`<a href="#run-1"><rect class="run"`, `class="parked"`, "backed off 409 ms, then queued 300 µs",
			"<code>status.observedGeneration</code>", "Conflict (409)", "48213005", "default/web-15-abcde"},
		"key?controller=web&namespace=default&name=none": {"is unknown", "No run of this key is remembered"},
	} {
		resp, page := do(t, http.MethodGet, root+path, "")
		require.Equal(t, http.StatusOK, resp.StatusCode, path)
		require.Equal(t, "text/html; charset=utf-8", resp.Header.Get("Content-Type"))
		for _, text := range want {
			require.Contains(t, page, text, path)
		}
		require.NotContains(t, page, "style=", "the Content-Security-Policy allows nothing inline")
		require.NotContains(t, page, "<form class=\"actions\"", "actions are off")
		require.NotContains(t, page, "<no value>")
		require.NotContains(t, page, `="/`, "links are relative, so that a proxy can serve the pages elsewhere")
	}
	for _, path := range []string{"nothing", "keys?controller=none", "key?controller=none&name=a", "a/b"} {
		resp, _ := do(t, http.MethodGet, root+path, "")
		require.Equal(t, http.StatusNotFound, resp.StatusCode, path)
	}
}

// TestAKeyThatRunsAllTheTimeIsShownOnce: the overview has each key with its latest run, the latest first.
func TestAKeyThatRunsAllTheTimeIsShownOnce(t *testing.T) {
	m := sampleStatus()
	run := func(name string, before time.Duration) status.RunSummary {
		return status.RunSummary{Name: name, Started: ago(before), Result: "success"}
	}
	for i := range 1000 {
		m.Controllers[0].Recent = append(m.Controllers[0].Recent, run("hot", time.Duration(2*i+1)*time.Millisecond))
	}
	m.Controllers[0].Recent[500].Name = "calm"
	m.Controllers[1].Recent = []status.RunSummary{run("hot", 0)}
	var names []string
	for _, k := range recentKeys(m.Controllers)[:3] {
		names = append(names, fmt.Sprintf("%s %s %d", k.Controller, k.Name, k.Runs))
	}
	require.Equal(t, []string{"db hot 1", "web hot 999", "web web-0 1"}, names)
	require.Equal(t, m.Controllers[1].Recent[0], recentKeys(m.Controllers)[0].RunSummary)
}

// TestNotices has a line for each kind of keys that need attention, with a link to them.
func TestNotices(t *testing.T) {
	m := status.Manager{At: sampleTime, Stage: status.StageWorking,
		Controllers: []status.Controller{
			{Name: "web", Stuck: 1, Hot: 2, Failed: 1, Invalid: 1, Failing: 2, Paused: 1, Parked: 3,
				LongestParked: 14 * time.Second, Panicking: 2}}}
	var lines []string
	for _, n := range notices(m) {
		lines = append(lines, n.Text+" "+strings.TrimPrefix(n.Link, "keys?controller=web&state="))
	}
	require.Equal(t, []string{
		"web: 1 call of Reconcile hangs although its context has ended Stuck",
		"web: 2 keys repeat their runs without an end Resting",
		"web: 1 key failed for good and rests until something changes; the error is on its page Failed",
		"web: 1 key rests because its object is invalid Invalid",
		"web: 2 keys fail, and will be tried again; the last error is on their page BackingOff",
		"web: 1 key waits until its pause is ended Paused",
		"web: 3 keys wait for caches to show what their last run wrote, the longest for 14 s Parked",
		"web: 2 objects make a function of their source panic, so changes may be missed; the log has the stack ",
	}, lines)
	m.Informers = []status.Informer{{Name: "pods", State: "Live", Silent: true,
		LastProgress: sampleTime.Add(-46 * time.Minute)}}
	require.Equal(t, notice{"bad", "The cache of pods may miss changes: the server has sent nothing for 46 min, " +
		"not even a bookmark", ""}, notices(m)[0])
	m.Informers = nil
	syncing := status.Manager{Stage: status.StageSyncing, WaitsFor: "a list", NotReady: []string{"a list"}}
	require.Equal(t, []notice{{"wait", "a list", ""}}, notices(syncing), "it is said once")
	m.Controllers[0].Failed = 2
	require.Contains(t, notices(m)[2].Text,
		"2 keys failed for good and rest until something changes; the error is on their page")
}

func TestJSON(t *testing.T) {
	s := newSample(120, webName)
	root := answering(t, Options{}, s)
	get := func(path string, to any, headers ...string) {
		resp, text := do(t, http.MethodGet, root+path, "", headers...)
		require.Equal(t, "application/json", resp.Header.Get("Content-Type"), path)
		require.NoError(t, json.Unmarshal([]byte(text), to), path)
	}
	var m status.Manager
	get("index.json", &m)
	require.Equal(t, s.m, m)
	var l keyList
	get("keys.json?controller=web&sort=failures", &l)
	require.Equal(t, 7, l.Keys[0].Failures)
	require.Equal(t, 120, l.Total)
	require.Equal(t, 3, l.Pages)
	require.Len(t, l.Keys, keysPerPage)
	var k status.Key
	get("key?controller=web&namespace=default&name=web-15", &k, "Accept", "application/json")
	require.Equal(t, s.details[reconcile.Key{Namespace: "default", Name: "web-15"}], k)
	var problem map[string]string
	get("keys.json?controller=none", &problem)
	require.NotEmpty(t, problem["error"])
}

// TestWhoMayRead is about pages that are served without AccessReviews.
func TestWhoMayRead(t *testing.T) {
	s := newSample(3, webName)
	root := answering(t, Options{}, s)
	resp, _ := do(t, http.MethodGet, root, "")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	for name, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; " +
			"img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
		"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer",
	} {
		require.Equal(t, want, resp.Header.Get(name))
	}
	for _, host := range []string{"localhost", "localhost:8080", "127.0.0.1:1", "[::1]:1"} {
		resp, _ := do(t, http.MethodGet, root, "", "Host", host)
		require.Equal(t, http.StatusOK, resp.StatusCode, host)
	}
	for _, host := range []string{"example.com", "127.0.0.1.example.com", "10.0.0.1:8080"} {
		resp, _ := do(t, http.MethodGet, root, "", "Host", host)
		require.Equal(t, http.StatusForbidden, resp.StatusCode, host)
	}
	resp, _ = do(t, http.MethodGet, answering(t, Options{Unguarded: true}, s), "", "Host", "example.com")
	require.Equal(t, http.StatusOK, resp.StatusCode)

	h := newHandler(Options{}, func(*http.Request) source { return s })
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "http://localhost/", nil))
	require.Equal(t, http.StatusForbidden, answer.Code, "nothing says that this has come over the loopback interface")
}

// TestAnotherSiteDrawsNothing: it could not read the answers, but would have the process make them.
func TestAnotherSiteDrawsNothing(t *testing.T) {
	s := newSample(3, webName)
	root := answering(t, Options{}, s)
	for _, path := range []string{"", "bundle", "events?page=index", "index.json"} {
		for _, headers := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
			{"Origin", "https://example.com"}, {"Origin", "null"}} {
			for _, method := range []string{http.MethodGet, http.MethodHead} {
				resp, _ := do(t, method, root+path, "", headers...)
				require.Equal(t, http.StatusForbidden, resp.StatusCode, "%s %s %v", method, path, headers)
			}
		}
	}
	for _, headers := range [][]string{{}, {"Sec-Fetch-Site", "none"}, {"Sec-Fetch-Site", "same-origin"},
		{"Origin", strings.TrimSuffix(root, "/debug/inspect/")}} {
		resp, _ := do(t, http.MethodGet, root, "", headers...)
		require.Equal(t, http.StatusOK, resp.StatusCode, headers)
	}
	resp, _ := do(t, http.MethodGet, answering(t, Options{Unguarded: true}, s), "", "Sec-Fetch-Site", "cross-site")
	require.Equal(t, http.StatusOK, resp.StatusCode, "a single sign-on leads here from another site")
}

func TestActions(t *testing.T) {
	s := newSample(30, webName)
	root := answering(t, Options{Actions: true}, s)
	form := url.Values{"controller": {"web"}, "namespace": {"default"}, "name": {"web-18"}, "do": {"resume"}}.Encode()
	const form2 = "application/x-www-form-urlencoded"
	_, page := do(t, http.MethodGet, root+"key?"+form, "")
	require.Contains(t, page, `<button name="do" value="resume">`, "web-18 is paused")

	resp, _ := do(t, http.MethodPost, root+"action", form, "Content-Type", form2, "Sec-Fetch-Site", "same-origin")
	require.Equal(t, http.StatusSeeOther, resp.StatusCode)
	require.Equal(t, "key?controller=web&name=web-18&namespace=default", resp.Header.Get("Location"))
	require.Equal(t, []string{"web resume default/web-18"}, s.acted)

	for _, headers := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
		{"Origin", "https://example.com"}, {"Origin", "null"}} {
		resp, _ := do(t, http.MethodPost, root+"action", form, append(headers, "Content-Type", form2)...)
		require.Equal(t, http.StatusForbidden, resp.StatusCode, headers)
	}
	resp, _ = do(t, http.MethodPost, root+"action?"+form, "", "Content-Type", form2)
	require.Equal(t, http.StatusBadRequest, resp.StatusCode, "a link cannot act")
	resp, _ = do(t, http.MethodPost, root+"action", form+strings.Repeat("x", maxForm), "Content-Type", form2)
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)
	resp, _ = do(t, http.MethodGet, root+"action?"+form, "")
	require.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode)
	resp, _ = do(t, http.MethodPost, root+"keys?"+form, "")
	require.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode)
	resp, _ = do(t, http.MethodPost, answering(t, Options{}, s)+"action", form, "Content-Type", form2)
	require.Equal(t, http.StatusForbidden, resp.StatusCode, "they are off")
	require.Len(t, s.acted, 1)
}

// TestEvents follows a page, which comes once, and again when it has changed; and as often as there are streams.
func TestEvents(t *testing.T) {
	s := newSample(30, webName)
	root := answering(t, Options{}, s)
	_, page := do(t, http.MethodGet, root+"key?controller=web&namespace=default&name=web-15", "")
	_, rest, ok := strings.Cut(page, `data-events="`)
	require.True(t, ok)
	address, _, _ := strings.Cut(rest, `"`)

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	open := func() *http.Response {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, root+strings.ReplaceAll(address, "&amp;", "&"), nil)
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	resp := open()
	require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	require.NoError(t, err)
	var html string
	require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &html))
	require.Contains(t, page, strings.TrimSpace(html), "an event has the main part of the page")
	for range maxStreams - 1 {
		require.Equal(t, http.StatusOK, open().StatusCode)
	}
	require.Equal(t, http.StatusServiceUnavailable, open().StatusCode)
}

func TestPatternsOfTheHandler(t *testing.T) {
	h := newHandler(Options{}, func(*http.Request) source { return newSample(3, webName) })
	for pattern, code := range map[string]int{"/": 200, "/inspect/": 200, "GET /inspect/": 200,
		"localhost/inspect/": 200, "/inspect": 500} {
		mux := http.NewServeMux()
		mux.Handle(pattern, h)
		server := httptest.NewServer(mux)
		path := "/inspect/keys?controller=web"
		switch pattern {
		case "/":
			path = "/keys?controller=web"
		case "/inspect":
			path = "/inspect"
		}
		resp, _ := do(t, http.MethodGet, server.URL+path, "", "Host", "localhost")
		require.Equal(t, code, resp.StatusCode, pattern)
		server.Close()
	}
	server := httptest.NewServer(http.StripPrefix("/x", h))
	defer server.Close()
	resp, _ := do(t, http.MethodGet, server.URL+"/x/keys?controller=web", "")
	require.Equal(t, http.StatusOK, resp.StatusCode)
}
