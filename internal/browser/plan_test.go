package browser

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/reconcile/plan"
)

// TestPlan looks at the page of a report that has something of each kind, and strange names and texts in every place.
// Nothing escapes, and the page is not wider than its window.
func TestPlan(t *testing.T) {
	ctx := newBrowser(t)
	open := func(name string, r *plan.Report) string {
		file := filepath.Join(t.TempDir(), name+".html")
		out, err := os.Create(file)
		require.NoError(t, err)
		require.NoError(t, r.WritePage(out))
		require.NoError(t, out.Close())
		return "file://" + file
	}
	shown := chromedp.WaitVisible("main")
	takePictures(t, ctx, "plan", open("plan", planned("web")), shown)
	data, err := os.ReadFile("../../reconcile/plan/pictures/etcd.json") // by a test of examples/etcd
	require.NoError(t, err)
	var etcd plan.Report
	require.NoError(t, json.Unmarshal(data, &etcd))
	takePictures(t, ctx, "etcd", open("etcd", &etcd), shown)
	for i, name := range strange {
		page := open("strange", planned(name))
		takePictures(t, ctx, fmt.Sprint("plan-strange-", i), page, shown)
		require.True(t, strings.HasPrefix(get(t, ctx, chromedp.Evaluate[string](`document.title`)), "What "))
		require.Zero(t, get(t, ctx, chromedp.Evaluate[int](`document.scripts.length + document.images.length`)))
	}
	do(t, ctx, chromedp.Navigate(open("plan", planned("web"))), click(`a[href="#change-1"]`),
		until(`document.querySelector("article:target").id === "change-1"`), click("summary"),
		until(`document.querySelector("details").open`))

	empty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		if err := (&plan.Report{Settled: true}).WritePage(w); err != nil {
			panic(err)
		}
	}))
	t.Cleanup(empty.Close)
	do(t, ctx, chromedp.Navigate(empty.URL), text("main", "no changes"))
}

// planned is a report in which a name is in each place that others than the plan fill.
func planned(name string) *plan.Report {
	object := func(kind string) plan.Object {
		return plan.Object{APIVersion: "v1", Kind: kind, Namespace: name, Name: name}
	}
	path := "spec.template.spec.containers[" + name + "].image"
	changes := []plan.Change{
		{Wave: 1, Verb: "update", Object: object("Deployment"), By: name, Writes: 3,
			Fields: []plan.Field{{Path: path, Old: name + ":1", New: name + ":2"}, {Path: "spec.paused", Old: true},
				{Path: "spec.replicas", New: 3}},
			Restarts: &plan.Restarts{Pods: 2, Why: []string{path}}},
		{Wave: 1, Verb: "create", Object: object("ConfigMap"), Fields: []plan.Field{
			{Path: "data[" + name + "]", New: name}}},
		{Wave: 1, Verb: "create", Object: object("Secret"), Fields: []plan.Field{{Path: "data", Hidden: true}}},
		{Wave: 2, Verb: "delete", Object: object("PersistentVolumeClaim"), LosesData: true, Waits: []string{name}},
		{Wave: 2, Verb: "update", Subresource: "status", Object: object("StatefulSet"),
			Restarts: &plan.Restarts{Pods: 3, Why: []string{path}, When: "when they are deleted (OnDelete)"}},
	}
	return &plan.Report{Settled: true, Program: name, Changes: changes,
		Anyway: changes, NoLonger: changes, OtherDoubt: name,
		Refused: []plan.Refusal{{Verb: "patch", Object: object("pods"), Code: 403, Reason: "Forbidden", Message: name,
			Times: 2}},
		HotLoops: []plan.HotLoop{{Object: object("pods"), Writes: 20, Changes: 10, Seconds: 1.5,
			Fields: []string{path}}},
		Approximate: []plan.Approximation{{Resource: name, Group: name, Why: name, Times: 1}},
		Missing:     []plan.Right{{Verb: "list", Resource: name, Namespace: name}},
		Unserved:    []string{name}, Elsewhere: []string{name}, ElsewhereUnknown: name}
}
