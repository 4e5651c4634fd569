package status

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/thermostat-go/thermostat/informer"
)

// Why says in a sentence or two why a key is not being reconciled at the moment k.At, or that it is, and what would
// change that. c and m are what its Controller and its Manager looked like then. There is an answer for every key. It
// has no value of an object, and of an error no more than k, c and m have.
func Why(k *Key, c *Controller, m *Manager) string {
	e := explanation{k, c, m, strings.TrimPrefix(k.Namespace+"/"+k.Name, "/")}
	switch k.State {
	case KeyNotStarted, KeySyncing, KeyStandby:
		return e.withoutWorkers()
	case KeyRunning:
		return e.running()
	case KeyStuck:
		return e.stuck()
	case KeyPaused:
		return e.paused()
	case KeyParked:
		return e.parked()
	case KeyReady:
		return e.ready()
	case KeyResting:
		return e.resting()
	case KeyBackingOff:
		return e.backingOff()
	default:
		return e.atRest() + e.Doubt.text(e.At)
	}
}

// explanation has a method for each state of a key.
type explanation struct {
	*Key
	controller *Controller
	manager    *Manager
	name       string
}

// ago returns the time since t, and until the time until t.
func (e *explanation) ago(t time.Time) string   { return span(e.At.Sub(t)) }
func (e *explanation) until(t time.Time) string { return span(t.Sub(e.At)) }

// span is a duration as a text has it, with two figures or so.
func span(d time.Duration) string {
	d = max(d, 0)
	two := func(big, small time.Duration, names string) string {
		if rest := d % big / small; rest > 0 {
			return fmt.Sprintf(names, d/big, rest)
		}
		unit, _, _ := strings.Cut(fmt.Sprintf(names, d/big, 0), " 0 ")
		return unit
	}
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + " s"
	case d < time.Hour:
		return two(time.Minute, time.Second, "%d min %d s")
	case d < 48*time.Hour:
		return two(time.Hour, time.Minute, "%d h %d min")
	default:
		return two(24*time.Hour, time.Hour, "%d days %d h")
	}
}

// withoutWorkers is for all keys while no workers run.
func (e *explanation) withoutWorkers() string {
	since := e.manager.StageSince
	switch e.manager.Stage {
	case StageNotStarted:
		return e.name + " is not reconciled: Manager.Run has not been called."
	case StageStopped:
		return fmt.Sprintf("%s is not reconciled: Manager.Run returned %s ago.", e.name, e.ago(since))
	case StageStopping:
		return fmt.Sprintf("%s is not reconciled: for %s the Manager has been stopping, or has lost its leadership, "+
			"and no new run begins.", e.name, e.ago(since))
	case StageSyncing:
		return e.name + " is not reconciled yet: the workers start when all caches are complete, and " + e.missing() +
			"."
	case StageHandover:
		return fmt.Sprintf("%s is not reconciled yet: this process has led for %s, and its workers wait for %s.",
			e.name, e.ago(since), e.manager.WaitsFor)
	}
	if e.manager.Stage == StageWorking && e.Shard != nil {
		return e.elsewhere()
	}
	return e.name + " is not reconciled by this process: " + e.leader() + "."
}

// elsewhere is for a key whose slice may not be worked on here.
func (e *explanation) elsewhere() string {
	s, since := e.Shard, e.Shard.Since.Format(time.TimeOnly)
	switch {
	case s.Leader == "":
		return fmt.Sprintf("%s is led by nobody, as far as this process has seen: it is in slice %d.", e.name, s.Slice)
	case s.Leader == e.manager.Leadership.Identity:
		return fmt.Sprintf("%s is not reconciled at present: this process leads its slice, %d, since %s. Either the "+
			"slice has just come, and waits for the caches to show what was written before, or it is about to go to "+
			"another process, and waits for its last runs to end.", e.name, s.Slice, since)
	}
	return fmt.Sprintf("%s is led by replica %s since %s: it is in slice %d, and is reconciled there.", e.name,
		s.Leader, since, s.Slice)
}

// missing says which cache is not complete, and why.
func (e *explanation) missing() string {
	for _, inf := range e.manager.Informers {
		if inf.State != string(informer.Live) && inf.State != string(informer.Stale) {
			return fmt.Sprintf("that of %s has been %s for %s", inf.Name, inf.State, e.ago(inf.Since)) +
				inf.Reason.Because()
		}
	}
	return "the sources have yet to name the first keys"
}

// leader says who leads.
func (e *explanation) leader() string {
	l := e.manager.Leadership
	if l == nil {
		return "it does not lead"
	}
	text := "another one leads"
	switch {
	case l.Sharded:
		text = "it has no Lease in the group of the table " + l.Lease
		if l.NotReady != nil {
			text += l.NotReady.Because()
		}
		return text
	case l.Lease != "" && l.Holder != "" && l.Holder != l.Identity:
		text = fmt.Sprintf("%s holds the Lease %s, and renewed it %s ago", l.Holder, l.Lease, e.ago(l.HolderSince))
	case l.Lease != "":
		text = "no other process is known to hold the Lease " + l.Lease
	}
	if l.NotReady != nil {
		return text + "; this process could not lead" + l.NotReady.Because()
	}
	return text + "; this process leads when the Lease is released or no longer renewed"
}

func (e *explanation) running() string {
	r := e.Running
	if r == nil { // between the queue's Get and the call, or between the call and the queue's Done
		return e.name + " is in the hands of a worker: its call of Reconcile begins at this moment, or has just ended."
	}
	text := fmt.Sprintf("%s has been in a call of Reconcile for %s", e.name, span(r.Took))
	if q := r.Request; q != nil {
		switch {
		case !q.Answered:
			text += fmt.Sprintf(", and waits for the answer to %s %s for %s", q.Method, q.Resource, e.ago(q.Since))
		case q.Code == http.StatusTooManyRequests:
			text += ", and the server answered its last request with 429 Too Many Requests: the client waits before " +
				"it asks again"
		case r.LooksLimited():
			text += fmt.Sprintf(", %s of it before its %d requests: its client seems to have a limit of its own",
				span(r.BeforeRequests), r.Requests)
		}
	}
	text += fmt.Sprintf("; its ctx ends %s after it began.", span(e.controller.Timeout))
	if e.Again {
		text += " It has been named meanwhile, and runs again after that."
	}
	return text
}

func (e *explanation) stuck() string {
	return fmt.Sprintf("%s is out of service: its call of Reconcile began %s ago, and has not returned although its "+
		"ctx has ended. It is in %s. Only its return, or a restart of the process, changes that.", e.name,
		span(e.Running.Took), e.Running.Where)
}

func (e *explanation) paused() string {
	text := fmt.Sprintf("%s has been paused for %s", e.name, e.ago(e.Since))
	if len(e.Causes) > 0 {
		text += ", and has been named meanwhile"
	}
	return text + "; Resume lets it run."
}

// parked explains the first debt.
func (e *explanation) parked() string {
	text := fmt.Sprintf("%s has waited for %s", e.name, e.ago(e.Since))
	if len(e.Debts) == 0 {
		return text + ", and is about to be queued."
	}
	d := e.Debts[0]
	text += ": " + e.debt(d)
	if d.Kind != DebtUnderWay && d.CacheState != string(informer.Live) {
		text += fmt.Sprintf(" and has been %s for %s", d.CacheState, e.ago(d.CacheSince)) + d.CacheReason.Because()
	}
	if d.CacheInvalid {
		text += " and cannot take the present state of that object"
	}
	text += "."
	if more := len(e.Debts) - 1; more > 0 {
		text += fmt.Sprintf(" It waits for %d more writes.", more)
	}
	if (d.Kind == DebtChange || d.Kind == DebtDeletion) && e.At.Before(d.RelistAt) {
		text += fmt.Sprintf(" If nothing comes within %s, the informer lists anew.", span(d.RelistAt.Sub(d.Since)))
	}
	return text
}

// debt says what was written, and how far the cache is.
func (e *explanation) debt(d Debt) string {
	name := strings.TrimPrefix(d.Namespace+"/"+d.Name, "/")
	if d.Name == "" {
		name = strings.TrimRight("an object in namespace "+d.Namespace, " ")
	}
	cache := "the cache of " + d.Informer
	switch d.Kind {
	case DebtUnderWay:
		return "a write of its last run has not been answered yet"
	case DebtNotReady:
		switch {
		case d.Name != "" && d.CacheVersion == "":
			return fmt.Sprintf("its object names %s in %s, which is not known yet; %s has no version of it yet", name,
				d.Informer, cache)
		case d.Name != "":
			return fmt.Sprintf("its object names %s in %s, and what %s has of it is too old; it is at version %s", name,
				d.Informer, cache, d.CacheVersion)
		}
		where, there := "", ""
		if d.Namespace != "" {
			where, there = " in namespace "+d.Namespace, " there"
		}
		text := fmt.Sprintf("%s may not be acted on%s, as it is incomplete or too old%s; it ", cache, where, there)
		if d.CacheVersion == "" {
			return text + "has no version yet"
		}
		return text + "is at version " + d.CacheVersion
	case DebtUnknown:
		return fmt.Sprintf("the answer to a write of %s, in %s, was lost, and %s has to be listed anew to show "+
			"whether it happened; it is at version %s", name, d.Informer, cache, d.CacheVersion)
	case DebtDeletion:
		return fmt.Sprintf("its last run deleted %s in %s, which %s does not show yet; it is at version %s", name,
			d.Informer, cache, d.CacheVersion)
	}
	return fmt.Sprintf("its last run %s %s in %s at version %s, and %s is at %s", e.verbOf(d), name, d.Informer,
		d.ResourceVersion, cache, d.CacheVersion)
}

// verbOf returns what the run did whose debt this is.
func (e *explanation) verbOf(d Debt) string {
	for _, r := range slices.Backward(e.Runs) {
		for _, w := range r.Writes {
			if w.ResourceVersion == d.ResourceVersion && (w.Name == d.Name || w.Name == "") {
				return map[string]string{"create": "created", "update": "updated", "patch": "patched",
					"apply": "applied", "wrote": "wrote"}[w.Verb]
			}
		}
	}
	return "wrote"
}

func (e *explanation) ready() string {
	c := e.controller
	text := fmt.Sprintf("%s has waited for %s for a worker; busy workers: %d of %d", e.name, e.ago(e.Since),
		min(c.Running, c.Workers), c.Workers)
	if c.Running > 0 {
		text += fmt.Sprintf(", one of them for %s", span(c.LongestRun))
	}
	if others := e.Ready - 1; others > 0 {
		text += fmt.Sprintf("; other keys that are ready: %d", others)
		if e.Ahead > 0 {
			text += fmt.Sprintf(", of a higher priority: %d", e.Ahead)
		}
	}
	if c.Stuck > 0 {
		text += fmt.Sprintf("; calls of Reconcile that are stuck: %d", c.Stuck)
	}
	return text + "."
}

func (e *explanation) resting() string {
	why := "only its own runs bring it up, and they repeat themselves"
	if e.HotLoop.Undone {
		why = "another writer undoes each of its writes"
	}
	text := fmt.Sprintf("%s rests for another %s because it is in a hot loop: %s, %d times so far", e.name,
		e.until(e.Next), why, e.HotLoop.Repeats)
	if w := e.lastWrite(); w != "" {
		text += "; what it writes: " + w
	}
	if e.HotLoop.Changing != "" {
		text += "; what changes: " + e.HotLoop.Changing
	}
	return text + ". Another change that names it ends the rest."
}

// lastWrite returns what the last run wrote last, with the fields if they are known.
func (e *explanation) lastWrite() string {
	n := len(e.Runs)
	if n == 0 || len(e.Runs[n-1].Writes) == 0 {
		return ""
	}
	w := e.Runs[n-1].Writes[len(e.Runs[n-1].Writes)-1]
	if len(w.Paths) == 0 {
		return w.String()
	}
	return fmt.Sprintf("%s (%s)", w, strings.Join(w.Paths, ", "))
}

func (e *explanation) backingOff() string {
	if !e.RefusedUntil.IsZero() {
		return fmt.Sprintf("%s failed %s, and the server asked for a pause: it is tried again in %s, and no change "+
			"brings that forward.", e.name, e.lastFailure(), e.until(e.RefusedUntil))
	}
	return fmt.Sprintf("%s has failed %s in a row, the last time %s; it is tried again in %s, or as soon as something "+
		"names it.", e.name, times(e.Failures), e.lastFailure(), e.until(e.Next))
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// lastFailure says when the last run failed, and with what.
func (e *explanation) lastFailure() string {
	n := len(e.Runs)
	if n == 0 || e.Runs[n-1].Error == nil {
		return "longer ago than is remembered"
	}
	r := e.Runs[n-1]
	text := e.ago(r.Started.Add(r.Took)) + " ago with " + r.Error.String()
	if r.Where != "" {
		text += " in " + r.Where
	}
	if m := len(r.Writes); m > 0 && r.Writes[m-1].Code >= 400 {
		w := r.Writes[m-1]
		text += fmt.Sprintf(", after the server answered %d to %s", w.Code, w)
		if w.Code == http.StatusForbidden {
			text += ": a Role has to allow that, unless an admission rule forbids it"
		}
	}
	return text
}

// atRest is for keys that are in no queue, or only wait for their time.
func (e *explanation) atRest() string {
	switch e.State {
	case KeyFailed:
		return fmt.Sprintf("%s rests until something changes: its last run failed for good %s.", e.name,
			e.lastFailure())
	case KeyInvalid:
		return e.name + " rests until its object changes or is gone: the object is invalid" + e.invalidVersion() +
			e.Runs[len(e.Runs)-1].Error.Because() + ". Reconcile is not called for it, and the controller has no " +
			"Options.Invalid."
	case KeyUnknown:
		return e.name + e.noObject() + ", and nothing has named it."
	}
	text := e.name
	if len(e.Objects) > 0 && !slices.ContainsFunc(e.Objects, func(o Object) bool { return o.Exists }) {
		text += e.noObject() + ", and"
	}
	switch {
	case !e.Since.IsZero():
		text += fmt.Sprintf(" has been in order for %s", e.ago(e.Since))
	case e.controller.Runs > MaxRecent:
		text += fmt.Sprintf(" is in order as far as is remembered: its last run was not one of the latest %d",
			MaxRecent)
	default:
		return text + " exists, and has not been reconciled by this process: no source has named it."
	}
	if e.Next.IsZero() {
		return text + "; nothing is due until something names it."
	}
	return text + fmt.Sprintf("; the next look is in %s, or as soon as something names it.", e.until(e.Next))
}

// invalidVersion names the state that a cache cannot take.
func (e *explanation) invalidVersion() string {
	for _, o := range e.Objects {
		if o.InvalidVersion != "" {
			return " at version " + o.InvalidVersion
		}
	}
	return ""
}

// noObject says in which cache there is no object.
func (e *explanation) noObject() string {
	if len(e.Objects) == 0 {
		return " is not known"
	}
	o := e.Objects[0]
	switch {
	case o.OutOfScope:
		return fmt.Sprintf(" is outside of what informer %s follows: namespace %s is not among its namespaces",
			o.Informer, e.Namespace)
	case o.Invalid != nil:
		return " has an object that is invalid" + o.Invalid.Because()
	}
	return " does not exist in the cache of " + o.Informer
}

// text is empty for nil.
func (d *Doubt) text(at time.Time) string {
	switch {
	case d == nil:
		return ""
	case d.Panicking > 0:
		on := d.Example
		if d.Panicking > 1 {
			on = fmt.Sprintf("%d objects, such as %s", d.Panicking, d.Example)
		}
		return fmt.Sprintf(" But a function of %s panics on %s, so changes may be missed.", d.Source, on)
	case d.CacheState != string(informer.Live):
		return fmt.Sprintf(" But the cache of %s has been %s for %s", d.Informer, d.CacheState,
			span(at.Sub(d.Since))) + d.Reason.Because() + ", so it may miss changes."
	default:
		return fmt.Sprintf(" But the server has sent nothing for the cache of %s for %s, not even a bookmark, so the "+
			"cache may miss changes.", d.Informer, span(at.Sub(d.Since)))
	}
}
