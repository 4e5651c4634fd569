package reconciletest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/internal/world"
)

const (
	// worldManager is who the world writes as.
	worldManager = "reconciletest-world"
	// reactIn is how long the world needs to see a write.
	reactIn = 53 * time.Millisecond
	// usuallyTakes is World.Takes.
	usuallyTakes = time.Second
	// slowerBy is how much longer the world needs to see a write when it is slow with a resource: for slowFor.
	slowerBy, slowFor = 60 * time.Second, 2 * time.Minute
	// ailFor is how long what the world makes of a resource does not work.
	ailFor = 60 * time.Second
	// retryIn is when the world tries again what was refused, such as by a webhook that is down.
	retryIn = 10 * time.Second
	// mostActs is how often the world may write within settleTime. What makes more goes in circles.
	mostActs = 10_000
)

// theNode is the item of the node that there is if there are no others, until it is made. Its resource is none of the
// world's: of what has become a node the world has another item.
var theNode = world.Item{Resource: "node", Name: "node"}

// surroundings are the world of a run: what it has to do, and when. They belong to the driver, which lets the world do
// one thing after the other, between the requests of the program: so a run is the same each time. Nil: there are none.
type surroundings struct {
	*World
	run   *run
	does  *world.World
	did   map[string]bool      // resources that it has written about
	slow  map[string]time.Time // resources that it is slow with, until when
	ails  map[string]bool      // resources of which nothing works for now
	seen  int64                // the version of the server up to which it has looked at writes
	due   map[world.Item]time.Time
	again map[world.Item]bool // of these, the ones that were refused, or only look: nothing waits for them
	last  time.Time           // when it has written
	// refused is why it could not do something about an item the last time.
	refused map[world.Item]string
	acts    int       // since then it has written so often
	since   time.Time // it is no longer ago than settleTime
}

// newSurroundings makes those of a run that has a world. They get a node if there is none.
func newSurroundings(r *run) *surroundings {
	s := r.server
	cfg := rest.CopyConfig(s.Config())
	cfg.UserAgent, cfg.ContentType = worldManager, runtime.ContentTypeProtobuf
	cfg.WarningHandler = rest.NoWarnings{}
	cfg.Wrap(func(through http.RoundTripper) http.RoundTripper { return oneByOne{through} })
	o := &surroundings{World: r.scenario.World, run: r, did: make(map[string]bool), slow: make(map[string]time.Time),
		ails: make(map[string]bool), due: make(map[world.Item]time.Time), again: make(map[world.Item]bool),
		refused: make(map[world.Item]string), since: time.Now()}
	var err error
	o.does, err = world.New(cfg, world.Options{Takes: o.takes, Health: o.health,
		Trim: func(of world.Object) { trim(s, of) }})
	if err != nil {
		panic(err) // the server's own configuration is right
	}
	if len(s.store.list(corev1.Resource("nodes"), s.Version())) == 0 {
		if err := o.node(); err != nil { // such as by a webhook that the program serves
			o.retry(theNode, err)
		}
	}
	return o
}

// node makes the node, which is ready.
func (o *surroundings) node() error {
	ctx := context.WithoutCancel(o.run.ctx)
	err := directRequest(ctx, o.run.server, http.MethodPost, "/api/v1/nodes",
		"application/json", []byte(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"node","labels":`+
			`{"kubernetes.io/hostname":"node"}}}`))
	if err != nil {
		return err
	}
	synctest.Wait() // as oneByOne does
	err = directRequest(ctx, o.run.server, http.MethodPatch, "/api/v1/nodes/node", string(types.MergePatchType),
		[]byte(`{"spec":{"taints":null}}`))
	synctest.Wait()
	return err
}

// oneByOne lets the program see each write of the world before the next one: all that it does about it without a
// request is done then. Otherwise it would depend on Go's scheduler how many of several writes it sees at once.
type oneByOne struct{ through http.RoundTripper }

// RoundTrip is called on the driver's goroutine.
func (t oneByOne) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.through.RoundTrip(r)
	if r.Method != http.MethodGet {
		synctest.Wait()
	}
	return resp, err
}

func (o *surroundings) takes(of world.Object) time.Duration {
	if o.Takes == nil {
		return usuallyTakes
	}
	return o.Takes(of)
}

func (o *surroundings) health(of world.Object) world.Health {
	switch {
	case o.Fails != nil && o.Fails(of):
		return world.Failing
	case o.ails[world.ResourceOf(of)]:
		return world.Ailing
	}
	return world.Well
}

// look looks for what was written since the last time.
func (o *surroundings) look() {
	for _, e := range changedSince(o.run.server, o.seen) {
		o.seen = e.version
		for _, i := range o.does.Affected(worldObject(e.old), worldObject(e.object)) {
			if i.Revised = false; o.World.does(i.Resource) {
				o.plan(i, time.Now().Add(reactIn))
			}
		}
		o.wake(e)
	}
}

// wake lets the world look at what may have waited for a write: pods for a Secret, a ConfigMap or a claim, and pods and
// DaemonSets for a node.
func (o *surroundings) wake(e event) {
	namespace := ""
	switch e.resource {
	case corev1.Resource("secrets"), corev1.Resource("configmaps"):
		if e.old != nil {
			return
		}
		namespace = e.object.GetNamespace()
	case corev1.Resource(world.Claims):
		namespace = cmp.Or(e.object, e.old).GetNamespace()
	case corev1.Resource("nodes"):
		o.planAll(world.DaemonSets, func(object) bool { return true }, reactIn)
	default:
		return
	}
	o.planAll(world.Pods, func(of object) bool {
		p, ok := of.(*corev1.Pod)
		return ok && (namespace == "" || p.Namespace == namespace) && p.Status.StartTime == nil
	}, reactIn)
}

// planAll lets the world look at all objects of a resource that matter.
func (o *surroundings) planAll(resource string, matters func(object) bool, in time.Duration) {
	s := o.run.server
	of := s.resources.of(world.Versioned(resource))
	if of == nil || !o.World.does(resource) {
		return
	}
	for _, one := range s.store.list(of.GroupResource(), s.Version()) {
		if matters(one) {
			o.plan(world.Item{Resource: resource, Namespace: one.GetNamespace(), Name: one.GetName()},
				time.Now().Add(in))
		}
	}
}

// worldObject is an object as the world takes it: nil stays nil.
func worldObject(o object) world.Object {
	if o == nil {
		return nil
	}
	return o
}

// plan lets the world look at an item at a time, or later if it is slow with it. The earliest of several times counts.
func (o *surroundings) plan(i world.Item, at time.Time) {
	if time.Now().Before(o.slow[i.Resource]) {
		at = at.Add(slowerBy)
	}
	o.put(i, at)
}

// put is plan, however slow the world is.
func (o *surroundings) put(i world.Item, at time.Time) {
	if due, ok := o.due[i]; !ok || at.Before(due) {
		o.due[i] = at
		delete(o.again, i)
	}
}

// next returns what is due first, and when; the zero time: nothing is.
func (o *surroundings) next() (i world.Item, at time.Time) {
	for item, due := range o.due {
		if at.IsZero() || due.Before(at) || due.Equal(at) && compareItems(item, i) < 0 {
			i, at = item, due
		}
	}
	return i, at
}

func compareItems(a, b world.Item) int {
	return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name))
}

// rests returns the last time at which the world has something to do, or has done something, as far as is known; not
// before a time.
func (o *surroundings) rests(last time.Time) time.Time {
	if o == nil {
		return last
	}
	if o.last.After(last) {
		last = o.last
	}
	for i, due := range o.due {
		if due.After(last) && !o.again[i] {
			last = due
		}
	}
	return last
}

// unfinished is about a world that is at work for longer than a run waits. Then nothing can be said of the program.
func (o *surroundings) unfinished(took time.Duration) {
	r := o.run
	i, at := o.next()
	text := fmt.Sprintf("the world is not done after %s: %s %s/%s is due in %s; World.Takes and minReadySeconds may "+
		"be up to %s", took, i.Resource, i.Namespace, i.Name, time.Until(at), worldTime)
	if r.note(hurt, "%s", text); len(r.schedule.disturbances) == 0 {
		r.fail(ruleSteps, text)
	}
	r.void = true
}

// turn lets the world do what is due, if anything is, and reports whether it has. Otherwise earliest is when it will
// be, or wake. What the program has asked for no later than that comes before.
func (o *surroundings) turn(wake time.Time) (did bool, earliest time.Time) {
	if o == nil {
		return false, wake
	}
	r := o.run
	synctest.Wait()
	o.look()
	i, at := o.next()
	switch {
	case at.IsZero():
		return false, wake
	case time.Now().Before(at), r.gates.wait(at):
		return false, earlier(wake, at)
	}
	delete(o.due, i)
	delete(o.again, i)
	before := r.server.Version()
	again, err := o.react(i)
	if changes := changedSince(r.server, before); len(changes) > 0 {
		o.wrote(i, changes)
	}
	switch {
	case err == nil && again > 0:
		o.plan(i, time.Now().Add(again))
		if i.Resource == world.Deployments {
			o.again[i] = true // it looks whether old pods are gone, and what makes them go is waited for
		}
	case err != nil:
		o.retry(i, err)
	default:
		delete(o.refused, i)
	}
	return true, wake
}

// begins is told that a step begins: the bound of the world's writes is that of a step.
func (o *surroundings) begins() {
	if o != nil {
		o.since, o.acts = time.Now(), 0
	}
}

func (o *surroundings) react(i world.Item) (again time.Duration, err error) {
	if i == theNode {
		if err := o.node(); !apierrors.IsAlreadyExists(err) {
			return 0, err
		}
		return 0, nil // a step has made one
	}
	return o.does.React(context.WithoutCancel(o.run.ctx), i)
}

// wrote notes what the world has changed.
func (o *surroundings) wrote(i world.Item, changes []event) {
	if o.last = time.Now(); i != theNode {
		o.did[i.Resource] = true
	}
	o.run.note(beside, "the world: %s", describe(changes))
	if time.Since(o.since) > settleTime {
		o.since, o.acts = time.Now(), 0
	}
	if o.acts += len(changes); o.acts > mostActs {
		o.run.fail(ruleSteps, fmt.Sprintf("the world does not come to rest: %d writes in %s, the last one: %s", o.acts,
			time.Since(o.since), describe(changes)))
	}
}

// retry lets the world try again later what was refused. What the server has no model of it cannot do at all.
func (o *surroundings) retry(i world.Item, err error) {
	text := fmt.Sprintf("the world cannot go on with %s %s/%s: %v", i.Resource, i.Namespace, i.Name, err)
	switch {
	case isNotModelled(err):
		o.run.fail(ruleSteps, text)
		return
	case o.refused[i] != text:
		o.refused[i] = text
		o.run.note(hurt, "%s", text)
	}
	o.put(i, time.Now().Add(retryIn))
	o.again[i] = true
}

// describe says what the world has changed.
func describe(changes []event) string {
	var all []string
	for _, e := range changes {
		o, what := cmp.Or(e.object, e.old), "updated"
		switch {
		case e.old == nil:
			what = "made"
		case e.object == nil:
			what = "gone"
		case e.old.GetDeletionTimestamp() == nil && o.GetDeletionTimestamp() != nil:
			what = "deleted"
		case reached(e.object) != reached(e.old):
			what = reached(e.object)
		}
		all = append(all, fmt.Sprintf("%s %s/%s %s", e.resource.Resource, o.GetNamespace(), o.GetName(), what))
	}
	return strings.Join(all, ", ")
}

// reached says in a word what the world has brought an object to; empty: there is no word for it.
func reached(o object) string {
	switch o := o.(type) {
	case *corev1.Pod:
		for _, c := range o.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return "ready"
			}
		}
		return "not ready"
	case *batchv1.Job:
		for _, c := range o.Status.Conditions {
			if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
				return strings.ToLower(string(c.Type))
			}
		}
		if o.Status.Active > 0 {
			return fmt.Sprintf("active, %d pods failed", o.Status.Failed)
		}
	case *corev1.Service:
		if len(o.Status.LoadBalancer.Ingress) > 0 {
			return "has an address"
		}
	case *corev1.PersistentVolumeClaim:
		return strings.ToLower(string(o.Status.Phase))
	}
	return ""
}

// ail lets nothing work of a resource, or all again. The world looks at all that there is.
func (o *surroundings) ail(resource string, ails bool) {
	o.ails[resource] = ails
	o.planAll(resource, func(object) bool { return true }, 0)
}

// calm ends what is wrong with the world. What was refused is tried at once, and waited for.
func (o *surroundings) calm() {
	if o == nil {
		return
	}
	clear(o.slow)
	for i := range o.again {
		o.due[i] = time.Now()
	}
	clear(o.again)
	for _, resource := range slices.Sorted(maps.Keys(o.ails)) {
		if o.ails[resource] {
			o.ail(resource, false)
		}
	}
}
