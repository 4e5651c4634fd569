package debts

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/kube"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
)

// These tests are the table of what a key waits for: each kind of write, with each kind of answer, in each state of the
// cache. In both of them a cache replays what a server has done, from each point on and to each point, and two things
// must hold of each case:
//
//	safe   when the key runs, the cache shows no state of the object from before the write, and will show none later
//	live   the key runs when the cache has come to the end, or at the latest when a list is complete that began then

// view is what a cache shows of a name.
type view struct {
	held bool
	informer.Version
}

// replay is a cache of one name that goes from one of the views to another.
type replay struct {
	*Ledger
	inf       *still
	views     []view   // one for each number of events that have come
	at        []string // the version that the cache has reached then
	now       int
	shown     view           // what the cache shows now
	bad       func(int) bool // the cache cannot take the view; nil: it can take all
	invalid   bool           // as is the case now
	namespace string         // that the informer follows
	later     bool           // a list has brought the version that the server had at the end
	completes int            // the number of the list that is complete when the cache has come to the next view
}

// latest is the version of a list that began after all that there is. It tells of writes of which the cache has seen no
// event, too.
const latest = "1000"

var replayed = Key{Namespace: "ns", Name: "a"}

// replayedInformer is that of a replay.
type replayedInformer struct {
	*still
	*replay
}

func (r replayedInformer) Invalid(key Key) error {
	if r.invalid && key == replayed {
		return errors.New("the cache cannot take it")
	}
	return nil
}

func (r replayedInformer) ResourceVersion(namespace string) string {
	if r.namespace != "" && namespace == "" {
		return ""
	}
	return r.still.ResourceVersion(namespace)
}

// newReplay is a cache that has come to a view. Its informer has the label selector in=yes, or none.
func newReplay(selector string, views []view, at []string, now int) *replay {
	r := &replay{Ledger: newLedger(),
		views: views, at: at, now: now,
		shown: views[now]}
	r.inf = &still{listed: 1, begun: 1, resourceVersion: at[now],
		version: func(key Key) (informer.Version, bool) {
			if key != replayed {
				return informer.Version{}, false
			}
			return r.shown.Version, r.shown.held
		}}
	r.CacheOf(replayedInformer{r.inf, r}).Learner = &writes.Learner{}
	r.learns(selector, "/api/v1/things")
	return r
}

func (r *replay) learns(selector, path string) {
	r.caches[0].Learner.Learn(&http.Request{URL: &url.URL{Host: "server", Path: path, RawQuery: selector}})
}

// rescope lets another list-watch follow the namespace, which has begun its first list.
func (r *replay) rescope(selector string) {
	r.namespace = replayed.Namespace
	r.learns(selector, "/api/v1/namespaces/ns/things")
	r.inf.listed, r.inf.begun = 0, r.inf.begun+1
	r.Reached(r.caches[0], r.namespace)
}

// goTo brings the cache to a view in the order of an informer: the events, if there is a difference, then the version,
// and only then the end of the list, if there is one.
func (r *replay) goTo(n int) {
	before, wasInvalid, c := r.shown, r.invalid, r.caches[0]
	r.now, r.shown = n, r.views[n]
	if r.invalid = r.shown.held && r.bad != nil && r.bad(n); r.invalid {
		// What the cache holds of the same object stays.
		if r.shown = (view{}); before.held && before.UID == r.views[n].UID {
			r.shown = before
		}
	}
	now := r.shown
	if before.held && (!now.held || now.UID != before.UID) {
		r.Saw(c, replayed, before.UID, r.at[n], true)
	}
	if now.held && now != before {
		r.Saw(c, replayed, now.UID, now.ResourceVersion, false)
	}
	if r.invalid || wasInvalid {
		r.Saw(c, replayed, "", "", false)
	}
	if r.inf.resourceVersion = r.at[n]; r.later {
		r.inf.resourceVersion = latest
	}
	r.inf.listed = max(r.inf.listed, r.completes)
	r.Reached(c, r.namespace)
}

// list completes a list that began after everything else, and has come to a view.
func (r *replay) list(n int) {
	r.inf.begun++
	r.completes, r.later = r.inf.begun, true
	r.goTo(n)
}

// older reports whether a cache that shows this view shows, now or later, a state from before the write. The write and
// all before it have been shown after so many events.
func (r *replay) older(written int) bool {
	if r.invalid && (r.now < written || !slices.Contains(r.views[written:r.now+1], r.shown)) {
		return true
	}
	for n := r.now; n < written; n++ {
		if r.views[n] != r.views[written] {
			return true
		}
	}
	return false
}

// TestAKeyWaitsAsTheAnswersOfARealServerDemand takes each write that was recorded from a real server as the key's own,
// and all others as somebody else's. The cache has seen, when the answer comes, each number of the events until then.
func TestAKeyWaitsAsTheAnswersOfARealServerDemand(t *testing.T) {
	cases := 0
	for _, c := range recordedAnswers(t) {
		for k, step := range c.Steps {
			query, _ := url.ParseQuery(step.Query)
			to, ok := recordedTarget(step.Path)
			if step.Method == http.MethodGet || step.Code/100 != 2 || !ok || to.Untold() ||
				query.Has("dryRun") || strings.Contains(string(step.Body), "dryRun") {
				continue
			}
			objects, err := writes.DecodeMetadata("application/json", step.Answer)
			require.NoError(t, err)
			for _, o := range objects {
				if o.Details == nil && o.Name == "" {
					continue // a list without items, which the record leaves out
				}
				w := writes.NewWrite(to, step.Method, step.Code, o)
				for _, selector := range []string{"", "labelSelector=in%3Dyes"} {
					views, at, written := c.views(to.Resource, w.Object, selector != "", k)
					if len(views) == 1 {
						continue // nothing watches it
					}
					w.Group, w.Resource, w.Host, w.Object = "", "things", "server", replayed
					for start := 0; start <= written; start++ {
						cases += waits{selector: selector, views: views, at: at, start: start, written: written,
							writes: []writes.Write{w}, byItself: selector == "" && !w.Unsure &&
								(w.ResourceVersion != "" || views[start].UID == w.UID),
						}.require(t, fmt.Sprintf("%s: %s, %q, seen %d of %d", c.Name, step.Name, selector, start,
							written))
					}
				}
			}
		}
	}
	t.Logf("%d cases", cases)
	require.Greater(t, cases, 10_000)
}

// waits is what a key has written by the time that a cache has come to a view.
type waits struct {
	selector       string
	views          []view
	at             []string
	start, written int // the cache shows all of it when it has come to written
	writes         []writes.Write
	byItself       bool           // the key runs without another list
	bad            func(int) bool // see replay
	rescope        string         // the scope changes "before" the writes or "after" them
	history        []act          // of the model
	states         []modelObject
}

// require opens the debts when the cache has come to start, and looks at each way on from there. It returns the number
// of cases.
func (w waits) require(t *testing.T, name string) (cases int) {
	for _, listing := range []bool{false, true} { // whether a list is under way at the start
		for stop := w.start; stop < len(w.views); stop++ {
			r := newReplay(w.selector, w.views, w.at, w.start)
			r.bad = w.bad
			if listing {
				r.inf.begun++
			}
			if w.rescope == "before" {
				r.rescope(w.selector)
			}
			for _, written := range w.writes {
				r.Ledger.Debtor(parent).Wrote(klog.Background(), written)
			}
			look := func(when string) {
				if _, waits := r.accounts[parent]; !waits && r.older(w.written) {
					t.Fatalf("%s: %s the key runs, and the cache shows %+v; the write left %+v", name, when, r.shown,
						w.views[w.written])
				}
				w.requireHandover(t, name+": "+when, r)
			}
			look("at once")
			if w.rescope == "after" {
				r.rescope(w.selector)
				look("in another scope")
			}
			switch {
			case w.rescope != "after" && (listing || w.rescope == "before"):
				r.completes = r.inf.begun
			case w.rescope == "after" && stop >= w.written:
				r.completes, r.later = r.inf.begun, true
			}
			r.goTo(stop)
			look(fmt.Sprintf("after %d events", stop-w.start))
			for n := stop + 1; n < len(w.views); n++ {
				r.goTo(n)
				look("later")
			}
			if _, waits := r.accounts[parent]; waits && w.byItself {
				t.Fatalf("%s: the cache shows everything, and the key does not run", name)
			}
			r.list(len(w.views) - 1)
			look("after a list")
			if _, waits := r.accounts[parent]; waits && !r.invalid {
				t.Fatalf("%s: there has been a list, and the key does not run", name)
			}
			requireInOrder(t, r.Ledger)
			r.bad, r.later = nil, false
			r.inf.begun++
			r.completes = r.inf.begun
			r.goTo(0) // the cluster goes back
			if _, waits := r.accounts[parent]; waits {
				t.Fatalf("%s: the cluster has gone back, and the key does not run", name)
			}
			for _, e := range r.left() {
				if kube.Older(w.at[0], e.ResourceVersion) || kube.Older(w.at[0], e.Listed) {
					t.Fatalf("%s: the cluster has gone back, and the handover has %+v", name, e)
				}
			}
			cases++
		}
	}
	return cases
}

// requireHandover gives the handover to the next leader, whose cache has come to any of the views.
func (w waits) requireHandover(t *testing.T, name string, r *replay) {
	if !w.handover() {
		return
	}
	left := r.left()
	for n := range w.written {
		next := newReplay(w.selector, w.views, w.at, n)
		if inherit(next.Ledger, newInheritance(left)) == nil && next.older(w.written) {
			t.Fatalf("%s: the next leader's workers start at %+v, and the write left %+v; the handover is %+v", name,
				w.views[n], w.views[w.written], left)
		}
	}
}

// handover reports whether the handover is looked at, too: it takes ten times as long.
func (w waits) handover() bool { return len(w.views) <= 4 }

// recordedTarget reads the path of a recorded request.
func recordedTarget(path string) (to writes.Target, ok bool) {
	to = writes.GuessTarget("server" + path)
	return to, to.Resource != ""
}

// views returns what a cache shows of an object after each event of a conversation, which version it has reached then,
// and how many events it takes until it shows the step.
func (c conversation) views(resource string, key Key, selected bool, step int) (views []view, at []string,
	written int) {
	now, version := view{}, "0"
	views, at = append(views, now), append(at, version)
	for k, s := range c.Steps {
		for _, e := range s.Events {
			if e.Resource != resource || e.Selected != selected {
				continue
			}
			if m := e.Metadata; m.Name == key.Name {
				now = view{held: true, Version: informer.Version{UID: types.UID(m.UID),
					ResourceVersion: m.ResourceVersion,
					Deleting:        m.DeletionTimestamp != ""}}
				if e.Type == "DELETED" {
					now = view{}
				}
			}
			version = e.Metadata.ResourceVersion
			views, at = append(views, now), append(at, version)
		}
		if k == step {
			written = len(views) - 1
		}
	}
	return views, at, written
}

// act is something that a server of the model does with the object.
type act struct {
	name  string
	legal func(o *modelObject) bool
	do    func(o *modelObject)
}

// modelObject is the one name of the model of a server. Its zero value is a name that nothing has.
type modelObject struct {
	exists, selected, kept, terminating bool
	uid, version                        int
}

func (o *modelObject) view(selector bool) view {
	if !o.exists || selector && !o.selected {
		return view{}
	}
	return view{true, informer.Version{UID: types.UID(fmt.Sprint("u", o.uid)), ResourceVersion: fmt.Sprint(o.version),
		Deleting: o.terminating}}
}

func create(selected, kept bool) func(*modelObject) {
	return func(o *modelObject) {
		o.uid++
		o.exists, o.selected, o.kept, o.terminating = true, selected, kept, false
	}
}

var acts = []act{
	{"create", func(o *modelObject) bool { return !o.exists }, create(true, false)},
	{"create with a finalizer", func(o *modelObject) bool { return !o.exists }, create(true, true)},
	{"create outside", func(o *modelObject) bool { return !o.exists }, create(false, false)},
	{"change", func(o *modelObject) bool { return o.exists }, func(o *modelObject) {}},
	{"take in or out", func(o *modelObject) bool { return o.exists },
		func(o *modelObject) { o.selected = !o.selected }},
	{"terminate", func(o *modelObject) bool { return o.exists && o.kept && !o.terminating },
		func(o *modelObject) { o.terminating = true }},
	{"end", func(o *modelObject) bool { return o.exists && (!o.kept || o.terminating) },
		func(o *modelObject) { o.exists = false }},
}

// answersTo returns what the answers to an act may say: before is the object before it, and after what it has become.
func answersTo(a act, before, after modelObject) (answers map[string]writes.Write) {
	meta := func(o modelObject) writes.Metadata {
		m := writes.Metadata{ObjectMeta: metav1.ObjectMeta{Namespace: replayed.Namespace, Name: replayed.Name,
			UID: o.view(false).UID, ResourceVersion: fmt.Sprint(o.version)}}
		if o.selected {
			m.Labels = map[string]string{"in": "yes"}
		}
		if o.kept {
			m.Finalizers = []string{"example.com/f"}
		}
		if o.terminating {
			m.DeletionTimestamp = &metav1.Time{}
		}
		return m
	}
	one := writes.Target{Host: "server", Resource: "things", Namespace: replayed.Namespace, Name: replayed.Name}
	all := writes.Target{Host: "server", Resource: "things", Namespace: replayed.Namespace}
	switch a.name {
	case "change", "take in or out":
		return map[string]writes.Write{
			"object": writes.NewWrite(one, http.MethodPut, 200, meta(after)), "lost": {Target: one},
			"scale": writes.NewWrite(writes.Target{Host: "server", Resource: "things", Namespace: replayed.Namespace,
				Name: replayed.Name, Subresource: "scale"}, http.MethodPut, 200, meta(after)),
		}
	case "terminate":
		return map[string]writes.Write{"lost": {Target: one},
			"object":     writes.NewWrite(one, http.MethodDelete, 200, meta(after)),
			"collection": writes.NewWrite(all, http.MethodDelete, 200, meta(before))}
	case "end":
		last, end := before, before
		end.version = after.version
		last.kept, end.kept = false, false
		answers = map[string]writes.Write{"lost": {Target: one},
			"collection": writes.NewWrite(all, http.MethodDelete, 200, meta(before))}
		if before.terminating { // the last finalizer is removed, or the grace period is cut short
			answers["finalizer removed"] = writes.NewWrite(one, http.MethodPatch, 200, meta(last))
			answers["object, at its end"] = writes.NewWrite(one, http.MethodDelete, 200, meta(end))
			return answers
		}
		details := writes.Metadata{Details: &metav1.StatusDetails{UID: before.view(false).UID}}
		answers["Status"] = writes.NewWrite(one, http.MethodDelete, 200, details)
		answers["object"] = writes.NewWrite(one, http.MethodDelete, 200, meta(last))
		answers["object, at its end"] = writes.NewWrite(one, http.MethodDelete, 200, meta(end))
		answers["Status without a UID"] = writes.NewWrite(one, http.MethodDelete, 200,
			writes.Metadata{Details: &metav1.StatusDetails{}})
		return answers
	default:
		return map[string]writes.Write{"lost": {Target: all},
			"object": writes.NewWrite(all, http.MethodPost, 201, meta(after))}
	}
}

// TestAKeyWaitsInEachCaseOfTheModel goes through all histories of one name of a few acts. Each act in turn is the key's
// own, with each answer that it may have; the others are somebody else's.
func TestAKeyWaitsInEachCaseOfTheModel(t *testing.T) {
	length, enough := 5, 300_000
	if testing.Short() {
		length, enough = 4, 50_000
	}
	cases, known := 0, 0
	inEachCase(length, func(name string, w waits) {
		if w.unsafe() {
			known++
			return
		}
		cases += w.require(t, name)
	})
	t.Logf("%d cases, and %d of a kind that is known not to be told apart", cases, known)
	require.Greater(t, cases, enough)
}

// TestAKeyWaitsWhateverElseHappens goes through shorter histories: the scope changes before the write or after it, the
// cache cannot take the object for a while, or a second act is the key's own, too.
func TestAKeyWaitsWhateverElseHappens(t *testing.T) {
	cases := 0
	require := func(name string, w waits) {
		if !w.unsafe() {
			cases += w.require(t, name)
		}
	}
	inEachCase(3, func(name string, w waits) {
		for _, when := range []string{"before", "after"} {
			rescoped := w
			rescoped.rescope = when
			require(fmt.Sprintf("%s, rescoped %s it", name, when), rescoped)
		}
		for from := range w.views {
			for to := from + 1; to <= len(w.views); to++ {
				if from > w.start || to <= w.start {
					spoilt := w
					spoilt.bad = func(n int) bool { return from <= n && n < to }
					require(fmt.Sprintf("%s, invalid from %d to %d", name, from, to), spoilt)
				}
			}
		}
		for k := w.written; k < len(w.history); k++ {
			for answer, second := range answersTo(w.history[k], w.states[k], w.states[k+1]) {
				both := w
				both.writes, both.written = append(slices.Clone(w.writes), second), k+1
				require(fmt.Sprintf("%s and then %d %s", name, k, answer), both)
			}
		}
	})
	t.Logf("%d cases", cases)
	if cases < 50_000 {
		t.Fatal("these are fewer than they were")
	}
}

// unsafe reports whether the case is of one of three kinds that are known not to be safe. Others take the object out of
// the selection and back in while it is deleted without a version in the answer: the cache shows it leave, and it is to
// come back. A new object that is not selected is not waited for, although the cache may be about to show an earlier
// one of its name. And nobody knows the name of an object whose creation was not answered, so that the cache cannot be
// asked whether it can take that.
func (w waits) unsafe() bool {
	nothing := func(one writes.Write) bool { return one.Name == "" && one.UID == "" }
	if w.bad != nil && slices.ContainsFunc(w.writes, nothing) {
		return true
	}
	return w.selector != "" && slices.ContainsFunc(w.writes, func(one writes.Write) bool {
		return one.Deleted && !one.Final && comesBack(w.views[:w.written+1]) ||
			one.Created && one.Labels["in"] == ""
	})
}

// inEachCase calls fn with each act of each history, with each answer to it, and each view that the cache may
// show then.
func inEachCase(length int, fn func(name string, w waits)) {
	var walk func(history []act, states []modelObject)
	walk = func(history []act, states []modelObject) {
		for k := range history {
			for answer, w := range answersTo(history[k], states[k], states[k+1]) {
				for _, selector := range []string{"", "labelSelector=in%3Dyes"} {
					views, at := make([]view, len(states)), make([]string, len(states))
					for i := range states {
						views[i], at[i] = states[i].view(selector != ""), fmt.Sprint(states[i].version)
						if i > 0 && selector != "" && views[i] == (view{}) && views[i-1] == (view{}) {
							at[i] = at[i-1] // no event
						}
					}
					for start := 0; start <= k+1; start++ {
						fn(fmt.Sprintf("%s, own: %d %s, selector %q, seen %d", acted(history), k, answer, selector,
							start), waits{selector: selector, views: views, at: at, start: start, written: k + 1,
							writes: []writes.Write{w}, history: history, states: states})
					}
				}
			}
		}
		if len(history) == length {
			return
		}
		for _, a := range acts {
			now := states[len(states)-1]
			if !a.legal(&now) {
				continue
			}
			now.version++
			a.do(&now)
			walk(append(history[:len(history):len(history)], a), append(states[:len(states):len(states)], now))
		}
	}
	walk(nil, []modelObject{{version: 1}})
}

func acted(history []act) (all string) {
	for _, a := range history {
		all += a.name + ", "
	}
	return strings.TrimSuffix(all, ", ")
}

// comesBack reports whether an object leaves the views and comes back.
func comesBack(views []view) bool {
	left := map[types.UID]bool{}
	for i, v := range views {
		if v.held && left[v.UID] {
			return true
		}
		if i > 0 && views[i-1].held && views[i-1].UID != v.UID {
			left[views[i-1].UID] = true
		}
	}
	return false
}
