package reconciletest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"
)

// The rules that other files speak of.
const (
	ruleConverges  = "converges"
	ruleIdempotent = "is idempotent"
	ruleSameEnd    = "ends as it does when nothing goes wrong"
	ruleWaits      = "waits as long as the server asks"
	ruleRights     = "has the rights that it needs"
	ruleEnds       = "ends with its ctx"
)

// verdict asks of a run that has done all steps what must hold then.
type verdict struct{ *run }

// pass ends all disturbances, waits for the program to come to rest, and asks what must hold then.
func (r verdict) pass() {
	r.gates.latency = usualLatency
	r.calm()
	limit := time.Now().Add(settleTime)
	for {
		r.settle()
		if r.failure != nil {
			return
		}
		err := r.settled()
		if err == nil {
			break
		}
		if time.Now().After(limit) {
			r.fail(ruleConverges, fmt.Sprintf("%s after the last disturbance: %v", settleTime, err))
			return
		}
	}
	r.last = takeSnapshot(r.server, r.scenario.Mask)
	r.rights()
	r.foreign()
	r.rest()
	r.idles()
}

func (r verdict) settled() error {
	if r.scenario.Settled == nil {
		return nil
	}
	return r.scenario.Settled(r.server)
}

// rights is about the roles.
func (r verdict) rights() {
	if len(r.refused) == 0 {
		return
	}
	detail := []string{"the roles do not allow to"}
	for _, u := range slices.SortedFunc(maps.Keys(r.refused), compareUses) {
		detail = append(detail, u.String())
	}
	r.fail(ruleRights, detail...)
}

// foreign is about what belongs to others.
func (r verdict) foreign() {
	for id := range r.touched {
		res, err := findResource(r.server, id.resource)
		if err != nil {
			continue
		}
		o := r.server.lookup(res, id.key())
		if o == nil || string(o.GetUID()) != id.uid || o.GetAnnotations()[touchedBy] != "" {
			continue
		}
		r.fail("leaves alone what belongs to others", fmt.Sprintf("the annotation %s, which a third party had put on "+
			"%s %s/%s, is gone", touchedBy, id.resource, id.namespace, id.name))
	}
}

// rest is about a program that starts anew when everything is done: it has nothing to write.
func (r verdict) rest() {
	if r.failure != nil {
		return
	}
	before := len(r.trace)
	r.crash(true)
	r.settle()
	if r.failure != nil {
		return
	}
	var writes []string
	for _, e := range r.trace[before:] {
		if e.weight == wrote {
			writes = append(writes, e.text)
		}
	}
	if len(writes) > 0 {
		r.fail(ruleIdempotent, append([]string{"everything was settled; a restart has written:"}, writes...)...)
		return
	}
	if err := r.settled(); err != nil {
		r.fail("stays settled", fmt.Sprintf("after a restart: %v", err))
	}
}

// calm takes back what disturbs for longer than a moment.
func (r *run) calm() {
	r.calmed, r.places = true, maps.Clone(r.seen)
	for _, p := range r.processes {
		p.link.LagBehind(0)
		for resource := range r.watched {
			r.delay(p, resource, 0)
		}
	}
}

func (r *run) delay(p *process, resource string, d time.Duration) {
	if res, err := findResource(r.server, resource); err == nil {
		p.link.delay(res.GroupResource(), d)
	}
}

// touch annotates the object of a request, as a third party does.
func (r *run) touch(req Request) {
	res := r.server.resources[req.Resource]
	if res == nil || req.Name == "" {
		return
	}
	o := r.server.lookup(res, req.key())
	if o == nil {
		return
	}
	data := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"yes"}}}`, touchedBy)
	path := pathOf(res, req.Namespace, req.Name)
	err := directRequest(context.WithoutCancel(r.ctx), r.server, http.MethodPatch, path, "application/merge-patch+json",
		data)
	if err != nil {
		r.note(hurt, "the third party failed: %v", err)
		return
	}
	r.touched[identityOf(req.Resource.Resource, o)] = true
}
