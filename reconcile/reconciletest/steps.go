package reconciletest

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	lateBy    = 20 * time.Second
	frozenFor = 60 * time.Second
	lagFor    = 10 * time.Second

	background = metav1.DeletePropagationBackground
)

func (id identity) key() types.NamespacedName {
	return types.NamespacedName{Namespace: id.namespace, Name: id.name}
}

// stepRun is a step of a run, from 1.
type stepRun struct {
	*run
	n int
}

// play does what the user does in the step, with what the schedule says, and lets the program settle.
func (r *stepRun) play() {
	n := r.n
	version := r.server.Version()
	var here []disturbance
	for _, d := range r.schedule.disturbances {
		if d.n == n && (slices.Contains(atSteps, d.what) && d.of == "" || slices.Contains(ofResources, d.what)) {
			here = append(here, d)
		}
	}
	for _, d := range here {
		r.before(d)
	}
	r.do()
	if r.failure != nil {
		return
	}
	if !slices.ContainsFunc(r.scenario.names(), r.sees) {
		if r.accompanied() {
			r.settle()
		}
		return
	}
	r.startDown(r.staysDown()...)
	for _, d := range here {
		r.during(d)
	}
	if len(r.processes) > 0 || r.accompanied() {
		r.settle()
	}
	// What follows may start a program anew, which is not to be blind for as long as it is judged.
	for _, d := range r.schedule.disturbances {
		if d.what == unseen && r.failure == nil && (d.n+1 == n || d.n == n && n == r.schedule.steps) {
			r.see(d)
		}
	}
	for _, d := range here {
		if r.failure == nil {
			r.after(d, version)
		}
	}
	if len(r.schedule.disturbances) == 0 {
		r.afterStep = append(r.afterStep, snapshotOf(r.run))
	}
}

// accompanied reports whether there is something that goes on while no program is up. The next step may need what it
// does.
func (r *stepRun) accompanied() bool { return len(r.beside) > 0 || r.around != nil }

// sees reports whether a program is there to see the steps one by one.
func (r *stepRun) sees(program string) bool {
	return !r.schedule.hit(coldStart, program) && !r.schedule.hit(unseenAll, program)
}

// do does the step.
func (r *stepRun) do() {
	step := r.scenario.Steps[r.n-1]
	if !r.outlast(step) {
		return
	}
	if len(r.from) < r.n {
		r.from = append(r.from, maps.Clone(r.seen))
	}
	r.around.begins()
	r.note(turn, "step %d: %s", r.n, step.name)
	before := r.server.Version()
	if d := (disturbance{what: reordered, n: r.n}); r.schedule.hasAt(d) {
		r.disturb(d)
		r.doReordered(step)
	} else if err := r.insist(func() error { return step.do(r.ctx, r.server) }); err != nil {
		r.stepFailed(step, err)
	}
	r.noteDeleted(before)
	r.refusals = newRefusals()
	if step.wait > 0 {
		r.hurried = false
		r.pass(step.wait)
		r.hurried = false // the next step comes when this one is over
	}
}

// stepFailed is about a step that does not work. What a server refuses after a third party has made something anew, or
// has deleted it, is nothing that a program can mend, such as to enlarge a claim that is not bound any more. What a
// webhook refuses may be the fault of the program that serves it.
func (r *stepRun) stepFailed(step Step, err error) {
	r.fail(ruleSteps, step.name+": "+err.Error())
	meddled := slices.ContainsFunc(r.schedule.disturbances, func(d disturbance) bool {
		return r.happened[d] && slices.Contains([]string{namesake, namesakeNow, stray}, d.what)
	})
	r.void = r.void || meddled && refusedText.MatchString(err.Error()) && !deniedText.MatchString(err.Error())
}

// refusedText is in what a server refuses because of its content: it says so, or its code.
var refusedText = regexp.MustCompile(`"code":(403|422)\b| is (forbidden|invalid): `)

// deniedText is in what a webhook refuses, which may be the program's.
var deniedText = regexp.MustCompile(`admission webhook .* denied the request`)

// insist does what a user does, and again while a webhook is not there, or a kind that the program makes, as a user
// who tries again when the program is up.
func (r *stepRun) insist(do func() error) error {
	err := do()
	r.waits(func(serve func()) {
		for try := 0; try < 3 && r.failure == nil; try++ {
			switch {
			case webhookFailed(err):
				r.note(hurt, "the user tries again later: a webhook could not be called")
			case errors.As(err, new(noKindError)):
				r.note(hurt, "the user tries again later: %v", err)
			default:
				return
			}
			serve()
			r.settle()
			err = do()
		}
	})
	return err
}

// waits lets a user wait, who may call serve if the programs are needed for that: it starts all that are down, also
// those that begin when all steps are done. They are down again when the user goes on.
func (r *stepRun) waits(wait func(serve func())) {
	var served []string
	wait(func() {
		cold := r.cold
		r.cold = false
		for _, p := range r.startDown() {
			served = append(served, p.Name)
		}
		r.cold = cold
	})
	for _, program := range served {
		if r.failure == nil {
			r.crash(disturbance{program: program}, false)
		}
	}
}

// doReordered applies the manifests of a step in another order, and lets the program settle after each. What the server
// refuses comes again when the others are there, as with a user who tries again.
func (r *stepRun) doReordered(step Step) {
	left := step.reordered()
	for len(left) > 0 && r.failure == nil {
		var refused []string
		var err error
		for _, document := range left {
			failed := r.insist(func() error { return applyDocument(r.ctx, r.server, document) })
			if failed != nil {
				refused, err = append(refused, document), failed
				continue
			}
			r.note(hurt, "apply %s", namesOf([]string{document}))
			if len(r.processes) > 0 {
				r.settle()
			}
		}
		if len(refused) == len(left) {
			r.stepFailed(step, err)
			return
		}
		left = refused
	}
}

// noteDeleted keeps what the user has deleted since a version of the server, as far as it is still there.
func (r *stepRun) noteDeleted(since int64) {
	for _, e := range changedSince(r.server, since) {
		if e.old == nil || e.old.GetDeletionTimestamp() != nil ||
			e.object != nil && e.object.GetDeletionTimestamp() == nil {
			continue
		}
		if r.noteDeletion(e); e.object != nil {
			r.deleted[identityOf(e.resource.String(), e.object)] = time.Now()
		}
	}
}

// outlast waits until what a step applies is not being deleted any more, as a user does who makes an object anew. The
// programs have to be up for that if the object has a finalizer of theirs, or if it does not go without them.
func (r *stepRun) outlast(step Step) bool {
	r.waits(func(serve func()) {
		for _, document := range step.documents {
			for try := range 3 { // "next step at" may cut a try short, and it is this step that it wants
				o := r.going(document)
				if o == nil || r.failure != nil {
					break
				}
				if try > 0 || slices.ContainsFunc(o.GetFinalizers(), func(f string) bool { return r.finalizers[f] }) {
					serve()
				}
				if r.settle(); try > 0 && r.failure == nil {
					r.see(disturbance{}) // what keeps it may be that the program has not seen the deletion
				}
			}
			// A program may look every few minutes only.
			for until := time.Now().Add(settleTime); r.failure == nil && time.Now().Before(until); {
				if o := r.going(document); o == nil || r.othersKeep(o) || isUsed(r.server, o) {
					break
				}
				r.pass(quiet)
			}
		}
	})
	return r.failure == nil
}

// going returns the object that a manifest names, if it is being deleted; nil: it is not, or the step will say what is
// wrong with the manifest.
func (r *stepRun) going(document string) object {
	res, o, err := parseManifest(r.server, document)
	if err != nil {
		return nil
	}
	there := r.server.lookup(res, keyOf(o))
	if there == nil || there.GetDeletionTimestamp() == nil {
		return nil
	}
	return there
}

// staysDown returns what keeps programs down over the next step, too.
func (r *stepRun) staysDown() []disturbance {
	if r.n == r.schedule.steps {
		return nil
	}
	return slices.DeleteFunc(r.schedule.all(downTwice), func(d disturbance) bool { return d.n != r.n })
}

// before begins a disturbance right before its step.
func (r *stepRun) before(d disturbance) {
	// Otherwise it makes no difference what it sees late.
	sees := slices.ContainsFunc(r.scenario.names(), func(name string) bool { return d.hits(name) && r.sees(name) })
	switch d.what {
	case down, downTwice:
		if len(d.among(r.processes)) > 0 {
			r.disturb(d)
		}
		r.crash(d, false)
	case unseen:
		if sees && len(d.among(r.processes)) > 0 {
			r.disturb(d)
			r.hide(d)
		}
	case late:
		if sees {
			r.disturb(d)
			r.delay(d, lateBy)
		}
	case frozen:
		if sees {
			r.disturb(d)
			r.delay(d, Never)
		}
	case worldSlow:
		r.disturb(d)
		r.around.slow[d.of] = time.Now().Add(slowFor)
	case worldFails:
		r.disturb(d)
		r.around.ail(d.of, true)
	}
}

// during goes on with a disturbance right after the step.
func (r *stepRun) during(d disturbance) {
	switch d.what {
	case backTo:
		r.versions[d] = r.server.Version()
	case cut:
		for _, p := range d.among(r.processes) {
			if p.link.watches() { // not one that has just started
				r.disturb(d)
			}
			p.link.CutWatches()
		}
	case frozen:
		r.pass(frozenFor)
		r.delay(d, 0)
		r.note(hurt, "the events of %s come again", d.of)
	case worldFails:
		r.pass(ailFor)
		r.note(hurt, "%s work again", d.of)
		r.around.ail(d.of, false)
	}
}

// after ends a disturbance when the step has settled, or begins one that needs that.
func (r *stepRun) after(d disturbance, version int64) {
	switch d.what {
	case late:
		r.delay(d, 0)
	case timeTravel:
		r.travel(d, version)
	case namesake, namesakeNow:
		r.remake(d)
	case stray:
		r.stray(d)
	}
}

// travel starts a program anew at a server that was left behind at a version, and catches up 10 s later.
func (r *run) travel(d disturbance, version int64) {
	r.disturb(d)
	r.crash(d, false)
	var back []*process
	for _, program := range r.scenario.hit(d) {
		p := r.start(program)
		p.link.LagBehind(version)
		back = append(back, p)
	}
	r.pass(lagFor)
	for _, p := range back {
		p.link.LagBehind(0)
	}
	r.note(hurt, "the cache of the server is up to date again")
	r.settle()
}

// hide breaks the watches of the programs that a disturbance hits. One that starts anew has watches of its own.
func (r *run) hide(d disturbance) {
	for _, p := range d.among(r.processes) {
		for s := range r.watched {
			if s.program == p.Name {
				r.hold(p, s.resource, Never)
			}
		}
	}
}

// see ends what unseen began: the watches end, and since the server has forgotten, the program has to list.
func (r *run) see(d disturbance) {
	r.server.Compact()
	for _, p := range d.among(r.processes) {
		p.link.CutWatches()
	}
	for s := range r.watched {
		if d.hits(s.program) {
			r.delay(disturbance{of: s.resource, program: s.program}, 0)
		}
	}
	r.note(hurt, "the watches begin anew, with lists")
	r.settle()
}

// stray deletes the first object of a resource that the program has made, and no user has applied since: what a user
// wants of it no program knows.
func (r *stepRun) stray(d disturbance) {
	for _, id := range r.made {
		res, err := findResource(r.server, id.resource)
		if id.resource != d.of || err != nil {
			continue
		}
		if o := r.server.lookup(res, id.key()); o == nil || string(o.GetUID()) != id.uid || isApplied(o) {
			continue
		}
		r.happened[d] = true
		if owner := r.controller(res, id); owner.object != nil && isDone(owner) {
			r.outliving = append(r.outliving, needless{owner, res.GroupResource(), id.key()})
		}
		r.note(hurt, "a third party deletes %s %s/%s", id.resource, id.namespace, id.name)
		if err := directDelete(r.ctx, r.server, res, id.namespace, id.name, background); err != nil {
			r.note(hurt, "the third party failed: %v", err)
		}
		r.settle()
		r.void = r.void || r.kept(res, id)
		return
	}
}

// kept reports whether something else than finalizers of the programs keeps an object that was deleted, alone or beside
// them: no program can undo that.
func (r *stepRun) kept(res *Resource, id identity) bool {
	o := r.server.lookup(res, id.key())
	if o == nil || string(o.GetUID()) != id.uid || o.GetDeletionTimestamp() == nil {
		return false
	}
	mine := func(f string) bool { return r.finalizers[f] }
	return !slices.ContainsFunc(o.GetFinalizers(), mine) || r.othersKeep(o)
}

// othersKeep reports whether an object that is being deleted has a finalizer that is neither the programs' nor the
// garbage collector's; nil: there is none.
func (r *stepRun) othersKeep(o object) bool {
	return o != nil && slices.ContainsFunc(o.GetFinalizers(), func(f string) bool {
		return !r.finalizers[f] && !isPolicy(f)
	})
}

// there reports whether there is what a manifest names.
func (r *stepRun) there(document string) bool {
	res, o, err := parseManifest(r.server, document)
	return err == nil && r.server.lookup(res, keyOf(o)) != nil
}

// remove deletes what a manifest names.
func (r *stepRun) remove(document string) {
	res, o, err := parseManifest(r.server, document)
	if err != nil {
		return // the step has said so
	}
	ctx := context.WithoutCancel(r.ctx)
	if err := r.insist(func() error {
		return directDelete(ctx, r.server, res, o.GetNamespace(), o.GetName(), background)
	}); err != nil {
		r.fail(ruleSteps, "delete: "+err.Error())
	}
}

// pass lets requests through for a time.
func (r *run) pass(d time.Duration) {
	begin := time.Now()
	until := begin.Add(d)
	writes, requests, kinds := 0, 0, map[string]int{}
	for r.failure == nil && time.Now().Before(until) {
		r.revive()
		g, over := r.next(until)
		if over {
			return
		}
		if g == nil {
			continue
		}
		if r.let(g) {
			writes++
			kinds[g.String()]++
		}
		if g.process.incarnation > 0 && !g.lives() {
			requests++
		}
		if r.loops(writes, requests, 1+int(d/settleTime), begin, kinds, g) {
			return
		}
	}
}
