package debts

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

var recordAnew = flag.Bool("record", false, "write "+answersFile+" anew")

// TestRecordAnswers sends the requests of the scripts to a real API server. It compares the answers, and the events
// that follow them, with those in the file. No controller acts on what the scripts make. To write the file anew:
//
//	go test ./reconcile/internal/debts -run TestRecordAnswers -args -record
func TestRecordAnswers(t *testing.T) {
	cluster := testcluster.New(t, testcluster.Options{DisableNode: true,
		Controllers: []string{"serviceaccount-controller"}})
	for _, definition := range answersDefinitions {
		o := &unstructured.Unstructured{}
		require.NoError(t, o.UnmarshalJSON([]byte(definition)))
		require.NoError(t, cluster.Apply(t.Context(), o))
	}
	scripts := answersScripts()
	got := make([]conversation, len(scripts))
	t.Run("scripts", func(t *testing.T) {
		for i, s := range scripts {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				got[i] = converse(t, cluster.Config(), cluster.Namespace(t), s)
			})
		}
	})
	if *recordAnew && !t.Failed() {
		require.NoError(t, os.WriteFile(answersFile, []byte(formatAnswers(t, got)), 0o644))
	}
	want := recordedAnswers(t)
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, formatAnswers(t, want[i:i+1]), formatAnswers(t, got[i:i+1]),
			"expected is what %s has, actual what the server does", answersFile)
	}
}

// script is a conversation that has not been had yet.
type script struct {
	name  string
	steps []step
}

// step is a request. Its path and body may name what has been seen: see conversing.fill.
type step struct {
	name, method, path, contentType, body string
}

// shorthands are what scripts call a collection.
var shorthands = map[string]struct{ path, apiVersion, kind string }{
	"cm":     {"/api/v1/namespaces/$NS/configmaps", "v1", "ConfigMap"},
	"pods":   {"/api/v1/namespaces/$NS/pods", "v1", "Pod"},
	"bind":   {"/api/v1/namespaces/$NS/bindings", "v1", "Binding"},
	"ns":     {"/api/v1/namespaces", "v1", "Namespace"},
	"deploy": {"/apis/apps/v1/namespaces/$NS/deployments", "apps/v1", "Deployment"},
	"rs":     {"/apis/apps/v1/namespaces/$NS/replicasets", "apps/v1", "ReplicaSet"},
	"jobs":   {"/apis/batch/v1/namespaces/$NS/jobs", "batch/v1", "Job"},
	"pdb":    {"/apis/policy/v1/namespaces/$NS/poddisruptionbudgets", "policy/v1", "PodDisruptionBudget"},
	"things": {"/apis/answers.example.com/v1/namespaces/$NS/things", "answers.example.com/v1", "Thing"},
	"plains": {"/apis/answers.example.com/v1/namespaces/$NS/plains", "answers.example.com/v1", "Plain"},
}

// conversing has a conversation.
type conversing struct {
	t         *testing.T
	client    *http.Client
	host      string
	namespace string
	seen      map[string]recordedMetadata // the last of each object that has been seen, by name
	first     map[string]recordedMetadata
	watches   []*watched
	marks     int
}

// watched is a watch. Its marker is an object that is changed to find out that all events before have come.
type watched struct {
	short, path, query string
	marker             string // the path of the marker
	events             chan recordedEvent
}

// marker is the name of the objects that make a watch show that it has come so far, or the end of it.
const marker = "marker"

func converse(t *testing.T, config *rest.Config, namespace string, s script) conversation {
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	c := &conversing{t: t, client: client, host: config.Host, namespace: namespace,
		seen: map[string]recordedMetadata{}, first: map[string]recordedMetadata{}}
	resources := map[string]bool{}
	for _, s := range s.steps {
		short, _, _ := strings.Cut(s.path, "/")
		short, _, _ = strings.Cut(short, "?")
		if resources[short] = true; short == "bind" {
			resources["pods"] = true
		}
	}
	delete(resources, "bind")
	delete(resources, "pdb") // its marker would be one for the pods of the script
	for _, short := range slices.Sorted(maps.Keys(resources)) {
		c.watch(short, "")
		c.watch(short, "labelSelector=in%3Dyes")
	}
	result := conversation{Name: s.name}
	for _, s := range s.steps {
		result.Steps = append(result.Steps, c.step(s))
	}
	return normalized(t, namespace, result)
}

// watch begins a watch of a collection, from its marker on.
func (c *conversing) watch(short, query string) {
	w := &watched{short: short, path: shorthands[short].path, query: query, events: make(chan recordedEvent, 1000)}
	name := marker
	if short == "ns" {
		name = "$NS-" + marker
	}
	w.marker = w.path + "/" + name
	code, body := c.send("GET", w.marker, "", "")
	if code == http.StatusNotFound {
		code, body = c.send("POST", w.path, "application/json",
			bodyOf(short, name, made(short, `"labels":{"in":"yes"}`)))
	}
	require.Equal(c.t, 2, code/100, "%s", body)
	from := metadataIn(c.t, body).ResourceVersion
	ctx, cancel := context.WithCancel(c.t.Context())
	url := c.host + c.fill(w.path) + "?watch=true&resourceVersion=" + from + "&" + query
	request, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	require.NoError(c.t, err)
	response, err := c.client.Do(request)
	require.NoError(c.t, err)
	require.Equal(c.t, http.StatusOK, response.StatusCode)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(w.events)
		for decoder := json.NewDecoder(response.Body); ; {
			var e struct {
				Type   string
				Object json.RawMessage
			}
			if decoder.Decode(&e) != nil {
				return
			}
			w.events <- recordedEvent{path.Base(w.path), w.query != "", e.Type, metadataIn(c.t, e.Object)}
		}
	}()
	c.t.Cleanup(func() {
		cancel()
		response.Body.Close()
		<-ended
	})
	c.watches = append(c.watches, w)
}

// step sends a request, and waits for the events that it causes.
func (c *conversing) step(s step) recordedStep {
	r := recordedStep{Name: s.name, Method: s.method, ContentType: s.contentType}
	short, rest, slash := strings.Cut(s.path, "/")
	short, query, _ := strings.Cut(short, "?")
	if slash {
		rest, query, _ = strings.Cut("/"+rest, "?")
	}
	r.Path, r.Query = c.fill(shorthands[short].path+rest), c.fill(query)
	if s.body != "" {
		r.Body = json.RawMessage(c.fill(s.body))
	}
	sent := string(r.Body)
	if s.method == "PUT" && !strings.HasSuffix(r.Path, "/scale") && !strings.HasSuffix(r.Path, "/finalize") {
		sent = c.overlaid(r.Path, sent)
	}
	var body []byte
	r.Code, body = c.send(s.method, strings.TrimSuffix(r.Path+"?"+r.Query, "?"), s.contentType, sent)
	c.remember(metadataIn(c.t, body))
	r.Answer = reduced(c.t, body)
	if s.method != "PATCH" || strings.Contains(s.contentType, "apply") {
		r.Body = withoutSpec(c.t, r.Body)
	}
	for _, w := range c.watches {
		r.Events = append(r.Events, c.upToMark(w)...)
	}
	slices.SortStableFunc(r.Events, func(a, b recordedEvent) int {
		return cmp.Compare(versionNumber(c.t, a.Metadata), versionNumber(c.t, b.Metadata))
	})
	for _, e := range r.Events {
		c.remember(e.Metadata)
	}
	return r
}

// overlaid returns the object of that path with the metadata of another, or the other one if there is none.
func (c *conversing) overlaid(address, other string) string {
	code, present := c.send("GET", address, "", "")
	if code != http.StatusOK {
		return other
	}
	var o, with map[string]any
	require.NoError(c.t, json.Unmarshal(present, &o))
	require.NoError(c.t, json.Unmarshal([]byte(other), &with))
	o["metadata"] = with["metadata"]
	data, err := json.Marshal(o)
	require.NoError(c.t, err)
	return string(data)
}

func versionNumber(t *testing.T, m recordedMetadata) int {
	n, err := strconv.Atoi(m.ResourceVersion)
	require.NoError(t, err)
	return n
}

// upToMark changes the marker of a watch, and returns the events before that one.
func (c *conversing) upToMark(w *watched) (events []recordedEvent) {
	c.marks++
	code, body := c.send("PATCH", w.marker, "application/merge-patch+json",
		fmt.Sprintf(`{"metadata":{"annotations":{"mark":"%d"}}}`, c.marks))
	require.Equal(c.t, http.StatusOK, code, "%s", body)
	mark := metadataIn(c.t, body)
	late := time.After(time.Minute)
	for {
		select {
		case e, ok := <-w.events:
			require.True(c.t, ok, "the watch of %s has ended", w.short)
			switch {
			case e.Metadata.ResourceVersion == mark.ResourceVersion:
				return events
			case strings.HasSuffix(e.Metadata.Name, marker):
			case e.Metadata.Name == "kube-root-ca.crt": // a controller makes it in each namespace, some time
			case w.short == "ns" && !strings.HasPrefix(e.Metadata.Name, c.namespace+"-"):
			default:
				events = append(events, e)
			}
		case <-late:
			require.Fail(c.t, "a watch does not show its marker", w.short)
		}
	}
}

func (c *conversing) remember(m recordedMetadata) {
	if m.UID == "" {
		return
	}
	name := strings.TrimPrefix(m.Name, c.namespace+"-")
	c.seen[name] = m
	if _, ok := c.first[name]; !ok {
		c.first[name] = m
	}
}

var references = regexp.MustCompile(`\{\{(\w+)\.(\w+)\}\}`)

// fill replaces $NS by the namespace; {{a.rv}} and {{a.uid}} by the last version and UID of the object a that have been
// seen, and {{a.rv1}} and {{a.uid1}} by the first.
func (c *conversing) fill(s string) string {
	s = strings.ReplaceAll(s, "$NS", c.namespace)
	return references.ReplaceAllStringFunc(s, func(reference string) string {
		m := references.FindStringSubmatch(reference)
		last, first := c.seen[m[1]], c.first[m[1]]
		value := map[string]string{"rv": last.ResourceVersion, "uid": last.UID, "rv1": first.ResourceVersion,
			"uid1": first.UID, "name": last.Name}[m[2]]
		require.NotEmpty(c.t, value, "nothing has been seen of %s", reference)
		return value
	})
}

func (c *conversing) send(method, address, contentType, body string) (code int, answer []byte) {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(c.fill(body))
	}
	request, err := http.NewRequestWithContext(c.t.Context(), method, c.host+c.fill(address), reader)
	require.NoError(c.t, err)
	request.Header.Set("Accept", "application/json")
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := c.client.Do(request)
	require.NoError(c.t, err)
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	require.NoError(c.t, err)
	return response.StatusCode, answer
}

// withoutSpec leaves of the body of a request what is not the specification of a workload.
func withoutSpec(t *testing.T, body json.RawMessage) json.RawMessage {
	var o map[string]any
	if len(body) == 0 {
		return nil
	}
	require.NoError(t, json.Unmarshal(body, &o))
	if spec, _ := o["spec"].(map[string]any); spec["template"] != nil || spec["containers"] != nil {
		delete(o, "spec")
	}
	data, err := json.Marshal(o)
	require.NoError(t, err)
	return data
}

// metadataIn returns the metadata in an object. It may be called by any goroutine.
func metadataIn(t *testing.T, object []byte) recordedMetadata {
	var o struct{ Metadata recordedMetadata }
	if err := json.Unmarshal(object, &o); err != nil {
		t.Errorf("%s: %v", object, err)
	}
	o.Metadata.dropLabels()
	return o.Metadata
}

// dropLabels drops the labels that the server has made.
func (m *recordedMetadata) dropLabels() {
	maps.DeleteFunc(m.Labels, func(k, _ string) bool { return len(k) > len("of") })
}

// reduced leaves of an answer what tells what has been written: of an object the metadata, of a namespace its
// finalizers, too; of a Status the reason and the details; of a list the items.
func reduced(t *testing.T, answer []byte) json.RawMessage {
	type part struct {
		APIVersion string            `json:"apiVersion,omitempty"`
		Kind       string            `json:"kind,omitempty"`
		Metadata   *recordedMetadata `json:"metadata,omitempty"`
		Spec       *struct {
			Finalizers []string `json:"finalizers,omitempty"`
		} `json:"spec,omitempty"`
	}
	var whole struct {
		part
		Status  any                   `json:"status,omitempty"`
		Reason  string                `json:"reason,omitempty"`
		Code    int                   `json:"code,omitempty"`
		Details *metav1.StatusDetails `json:"details,omitempty"`
		Items   []part                `json:"items,omitempty"`
	}
	require.NoError(t, json.Unmarshal(answer, &whole), "%s", answer)
	if whole.Kind != "Status" || whole.APIVersion != "v1" {
		whole.Status = nil
	}
	for _, p := range append([]*part{&whole.part}, pointers(whole.Items)...) {
		if p.Spec != nil && len(p.Spec.Finalizers) == 0 {
			p.Spec = nil
		}
		if p.Metadata != nil {
			p.Metadata.dropLabels()
		}
	}
	if whole.Details != nil {
		for i := range whole.Details.Causes {
			whole.Details.Causes[i].Message = "" // names versions and UIDs
		}
	}
	data, err := json.Marshal(whole)
	require.NoError(t, err)
	return data
}

func pointers[T any](s []T) (p []*T) {
	for i := range s {
		p = append(p, &s[i])
	}
	return p
}

// normalized returns the conversation with versions, UIDs, names and times that are the same each time.
func normalized(t *testing.T, namespace string, c conversation) (n conversation) {
	data, err := json.Marshal(c)
	require.NoError(t, err)
	tree := map[string]any{}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	require.NoError(t, decoder.Decode(&tree))
	z := &normalizer{t: t, namespace: namespace, deleted: map[string]time.Time{}}
	z.walk(tree, z.collect)
	slices.Sort(z.versions)
	z.versions = slices.Compact(z.versions)
	z.walk(tree, z.replace)
	data, err = json.Marshal(tree)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(bytes.ReplaceAll(data, []byte(namespace), []byte("ns")), &n))
	return n
}

type normalizer struct {
	t         *testing.T
	namespace string
	versions  []int
	uids      []string
	deleted   map[string]time.Time // when each object was deleted first, by UID
}

// walk calls visit for each object of a JSON tree, in an order that is always the same.
func (z *normalizer) walk(v any, visit func(map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		visit(v)
		for _, steps := range []string{"method", "path", "query", "body", "answer"} { // what is sent comes first
			if part, ok := v[steps]; ok {
				z.walk(part, visit)
			}
		}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if !slices.Contains([]string{"method", "path", "query", "body", "answer"}, k) {
				z.walk(v[k], visit)
			}
		}
	case []any:
		for _, e := range v {
			z.walk(e, visit)
		}
	}
}

// collect finds what is to be numbered.
func (z *normalizer) collect(o map[string]any) {
	if version, err := strconv.Atoi(fmt.Sprint(o["resourceVersion"])); err == nil {
		z.versions = append(z.versions, version)
	}
	if uid, ok := o["uid"].(string); ok && !slices.Contains(z.uids, uid) && uid != wrongUID {
		z.uids = append(z.uids, uid)
	}
}

// replace numbers what collect has found, and moves deletions to midnight.
func (z *normalizer) replace(o map[string]any) {
	if version, err := strconv.Atoi(fmt.Sprint(o["resourceVersion"])); err == nil {
		i, _ := slices.BinarySearch(z.versions, version)
		o["resourceVersion"] = strconv.Itoa(i + 1)
	}
	if name, ok := o["name"].(string); ok {
		if random, ok := strings.CutPrefix(name, generatedPrefix); ok && len(random) == 5 {
			o["name"] = generatedPrefix + "xxxxx"
		}
	}
	uid, ok := o["uid"].(string)
	if !ok || uid == wrongUID {
		return
	}
	o["uid"] = fmt.Sprintf("uid-%d", slices.Index(z.uids, uid)+1)
	if text, ok := o["deletionTimestamp"].(string); ok {
		at, err := time.Parse(time.RFC3339, text)
		require.NoError(z.t, err)
		seconds, err := strconv.Atoi(fmt.Sprint(cmp.Or(o["deletionGracePeriodSeconds"], any(json.Number("0")))))
		require.NoError(z.t, err)
		grace := time.Duration(seconds) * time.Second
		if _, ok := z.deleted[uid]; !ok {
			z.deleted[uid] = at.Add(-grace)
		}
		// Two seconds of the clock may be between two looks at it.
		since := at.Sub(z.deleted[uid]) - grace
		require.Less(z.t, since.Abs(), 10*time.Second, "the time of a deletion moves")
		o["deletionTimestamp"] = midnight.Add(grace).Format(time.RFC3339)
	}
}

var midnight = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
