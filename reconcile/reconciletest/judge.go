package reconciletest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// verdict asks of a run that has done all steps what must hold then.
type verdict struct{ *run }

// pass ends all disturbances, waits for the program to come to rest, and asks what must hold then.
func (r verdict) pass() {
	r.calm()
	r.deleteLeft()
	begin, limit := time.Now(), time.Now().Add(settleTime)
	var err error
	for waited := false; ; {
		r.settle()
		if r.failure != nil {
			return
		}
		err = r.settled()
		stays := r.terminating()
		if waits := r.schedule.outwait(r.scenario); waits > 0 && !waited && (err != nil || r.unlike()) {
			waited, limit = true, limit.Add(waits)
			r.run.pass(waits)
			continue
		}
		if err == nil && len(stays) == 0 && !r.repeats(limit) {
			break
		}
		if until := earlier(r.around.rests(begin), begin.Add(worldTime)).Add(settleTime); until.After(limit) {
			limit = until
		}
		if time.Now().After(limit) {
			if err != nil {
				r.fail(ruleConverges, fmt.Sprintf("%s after the last disturbance: %v", settleTime, err))
			}
			if len(stays) > 0 {
				r.fail(ruleLetsGo, stays...)
			}
			break
		}
	}
	if r.schedule.later {
		r.idle = map[string]bool{}
		before := len(r.trace)
		r.run.pass(idleFor)
		for _, e := range r.trace[before:] {
			if e.weight == wrote {
				r.idle[e.kind] = true
			}
		}
		r.last = snapshotOf(r.run)
		return
	}
	r.valid()
	r.last = snapshotOf(r.run)
	r.rights()
	r.webhooks()
	r.foreign()
	r.rest(err == nil)
	r.idles()
}

// repeats reports whether a write that has failed may still be repeated, and is missing: a queue that has failed often
// waits for minutes.
func (r verdict) repeats(limit time.Time) bool {
	return len(r.failed) > 0 && time.Now().Before(limit) && r.unlike()
}

// deleteLeft deletes what the schedule asks for, as a snapshot calls it; see variance.
func (r verdict) deleteLeft() {
	if len(r.schedule.deleteLeft) == 0 {
		return
	}
	keys := r.keys()
	for _, h := range holds(r.server) {
		if !slices.Contains(r.schedule.deleteLeft, keys[h.String()]) {
			continue
		}
		res, err := findResource(r.server, h.resource.String())
		if err == nil {
			err = directDelete(context.WithoutCancel(r.ctx), r.server, res, h.object.GetNamespace(), h.object.GetName(),
				background)
		}
		if err != nil {
			r.note(hurt, "the third party failed: %v", err)
		}
	}
}

// keys returns what a snapshot calls the objects of the server, by their own names.
func (r verdict) keys() map[string]string {
	keys := map[string]string{}
	for _, e := range entriesOf(r.server, holds(r.server), nil, r.scenario.mask) {
		keys[e.own] = e.key
	}
	return keys
}

// terminating says which objects are still there that the user has deleted, although only a finalizer of the program
// keeps them.
func (r verdict) terminating() (stays []string) {
	for id, at := range r.deleted {
		res, err := findResource(r.server, id.resource)
		if err != nil {
			continue
		}
		o := r.server.lookup(res, id.key())
		if o == nil || string(o.GetUID()) != id.uid {
			continue
		}
		mine := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return !r.finalizers[f] })
		if len(mine) > 0 {
			stays = append(stays, fmt.Sprintf("%s %s was deleted at %.3fs, and is still there with the finalizer %s",
				id.resource, id.key(), at.Sub(r.begin).Seconds(), strings.Join(mine, ", ")))
		}
	}
	slices.Sort(stays)
	return stays
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

// webhooks is about one that nothing serves: its calls fail, whatever the program does.
func (r verdict) webhooks() {
	if missed := r.server.hosts.unserved(); missed != "" {
		r.breaks(&breach{rule: ruleServed, where: []string{missed}, detail: []string{
			"nothing serves the webhook " + missed + ", and the server had to call it; what serves it is a handler " +
				"in Scenario.Server.Webhooks, or package reconcile/webhook in a program that gives it the ctx of " +
				"Run, and no server that opens a port of its own"}})
	}
}

// unlike reports whether the server does not hold what it holds when nothing goes wrong.
func (r verdict) unlike() bool {
	return r.ideal != nil && len(r.unlikeIdeal(snapshotOf(r.run))) > 0
}

// compare is about the end: it has to be that of the run in which nothing goes wrong.
func (r verdict) compare() {
	a := r.ideal
	if r.failure != nil || a == nil || r.outlived() {
		return
	}
	left := r.unlikeIdeal(r.last)
	if len(left) == 0 {
		return
	}
	head := "two runs end differently: A, in which nothing goes wrong, and B, which is below"
	wrong := breachOf(ruleSameEnd, head, left)
	for _, end := range []struct {
		name    string
		refused map[string]int
	}{{"A", a.invalid}, {"B", r.invalids}} {
		for _, request := range slices.Sorted(maps.Keys(end.refused)) {
			wrong.detail = append(wrong.detail, fmt.Sprintf("in %s the server has refused %s with 422, %d times",
				end.name, request, end.refused[request]))
		}
	}
	r.breaks(wrong)
}

// breachOf is a breach by differences.
func breachOf(rule, head string, all []difference) *breach {
	b := &breach{rule: rule, detail: []string{head}}
	for _, d := range all {
		b.detail = append(b.detail, d.String())
		b.where = append(b.where, d.kind())
		b.objects = append(b.objects, d.object)
	}
	slices.Sort(b.where)
	b.where = slices.Compact(b.where)
	return b
}

// foreign is about what belongs to others.
func (r verdict) foreign() {
	if wiped, ok := r.authors.wiped(r.ideal); ok {
		r.name(wiped.at...)
		r.breaks(&breach{rule: ruleForeign, where: []string{wiped.kind}, detail: []string{wiped.text}})
	}
	for id := range r.touched {
		res, err := findResource(r.server, id.resource)
		if err != nil {
			continue
		}
		o := r.server.lookup(res, id.key())
		if o == nil || string(o.GetUID()) != id.uid || o.GetAnnotations()[touchedBy] != "" {
			continue
		}
		r.fail(ruleForeign, fmt.Sprintf("the annotation %s, which a third party had put on "+
			"%s %s/%s, is gone", touchedBy, id.resource, id.namespace, id.name))
	}
}

// calm takes back what disturbs for longer than a moment.
func (r *run) calm() {
	r.calmed, r.places = true, maps.Clone(r.seen)
	r.around.calm()
	for _, p := range r.processes {
		p.latency = usualLatency
		p.link.LagBehind(0)
	}
	for s := range r.delays {
		r.delay(disturbance{of: s.resource, program: s.program}, 0)
	}
}

// delay holds the events of a resource back from the programs that a disturbance hits: from each incarnation that there
// is and that will be. Zero ends it.
func (r *run) delay(of disturbance, d time.Duration) {
	for _, program := range r.scenario.hit(of) {
		s := outlook{program.Name, of.of}
		if r.delays[s] = d; d == 0 {
			delete(r.delays, s)
		}
	}
	for _, p := range of.among(r.processes) {
		r.hold(p, of.of, d)
	}
}

func (r *run) hold(p *process, resource string, d time.Duration) {
	if res, err := findResource(r.server, resource); err == nil {
		p.link.delay(res.GroupResource(), d)
	}
}

// touch annotates the object of a request, as a third party does, and reports whether there is one.
func (r *run) touch(req Request) bool {
	res := r.server.resources.of(req.Resource)
	if res == nil || req.Name == "" {
		return false
	}
	o := r.server.lookup(res, req.key())
	if o == nil {
		return false
	}
	data := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"yes"}}}`, touchedBy)
	path := pathOf(res, req.Namespace, req.Name)
	err := directRequest(context.WithoutCancel(r.ctx), r.server, http.MethodPatch, path, "application/merge-patch+json",
		data)
	if err != nil {
		r.note(hurt, "the third party failed: %v", err)
		return false
	}
	r.touched[identityOf(req.Resource.Resource, o)] = true
	return true
}
