// Package leaderelection lets one of several processes work at a time, agreed on through a coordination/v1 Lease.
//
//	elector, err := leaderelection.New(leaderelection.Config{REST: restConfig, Namespace: "prod", Name: "my-controller"})
//	...
//	err = elector.Run(ctx, func(ctx context.Context) error { return work(ctx) }) // ctx ends when the tenure does
//
// Where it stands among the packages of this library: every candidate keeps its caches warm, and a Manager starts the
// workers, (4), only while it leads.
//
//	            informer                                          workqueue        reconcile
//	API   -list-> Reflector -> DeltaFIFO -> Indexer -> handlers --key-> Queue --key-> worker -> Reconcile(ctx, key)
//	server -watch->  (1)              (2)     |           (3)                          (4)            |
//	  ^                                       +------------------ Get / index lookups ----|-----------+
//	  +------------------------------- create / update / patch / delete ------------------|-----------+
//	  |                                                                                   |
//	  |  ========================= leaderelection ==================================      | runs while
//	  +--Lease--> observe --> campaign --> hold: lead(ctx), renewals, deadline --> release   it leads
//	     ============================================================================
//
// # Words
//
// The Lease is an object that names its holder. A candidate campaigns for it: it observes the Lease and takes it, by a
// conditional update, when it is free. From then on it leads: it runs the lead function and renews the Lease. The time
// for which it may do so is a tenure. A tenure ends when the lead function has returned, or when the tenure is lost.
// The other candidates are challengers.
//
// # The timeline of a tenure
//
// With the default durations, in seconds, for a holder that is cut off right after a renewal:
//
//	holder      send  ack                                      deadline         stopped
//	             |-----|------------------------------------------|----------------|
//	             0     : a                     RenewDeadline     10   StopGrace    13
//	             :     :                                          :                :
//	             :     :    the lead function works; IsLeader     : ctx has ended, : nothing
//	             :     :    and the fence let it                  : it returns     : runs
//	             :     :                                                           :
//	Lease        :  written, resourceVersion r                                     :
//	             :     :                                                           :  margin
//	challenger   :     :  reads r          r stands unchanged on its own clock     :        takes
//	             :     :    |-------------------------------------------------------------------|---
//	             :     :    b                                        LeaseDuration             b+15
//
// The holder counts from 0, when it SENT the renewal, and not from a, when the answer came: the server may have written
// r at any moment between, and the challenger may have read it that early. For the same reason the challenger counts
// from b, when it had READ r.
//
// # Why two tenures do not overlap
//
// Assume that what a clock measures as d takes between d(1-ρ) and d(1+ρ) of true time ([Config].ClockDrift, 5 %), that
// the server applies conditional updates one after the other, and that no process is stopped for longer than the margin
// that the checked inequality (3) leaves.
//
//  1. Let h be the holder's last acknowledged write, sent at s, and let it have made resourceVersion r. Later tries are
//     not acknowledged; they were applied, or were not.
//  2. The work ends by s + (RenewDeadline + StopGrace)(1+ρ). A timer of the holder's ends its context at RenewDeadline
//     after s, whatever the network does, and it then returns within StopGrace. If it does not, or returns an error
//     that wraps ErrStuck since some of what it started goes on, Run returns ErrStuck, the Lease is not released, and
//     the process has to go.
//  3. [New] refuses durations unless (RenewDeadline + StopGrace)(1+ρ) < LeaseDuration(1-ρ).
//  4. A challenger that takes the Lease from the holder does so at a resourceVersion q, whose record it has read at
//     some time b and which has stood for LeaseDuration on its clock, so it takes at or after b + LeaseDuration(1-ρ).
//     Between b and q there may be other versions, with other metadata, if a watch without a gap has shown each of them
//     and that the record was the same in all.
//  5. The record of q is r's or that of a later one of the holder's writes, for the update is conditional and replaces
//     what is there, and no two of the holder's writes hold the same record: each has a later renewTime. A record can
//     only be read after it was written, and only be written after it was sent: s <= b. (Across a gap, as between two
//     looks of a challenger that may not watch, the holder may have written, and a hand may have put back what was
//     there before. So there another version counts as another record, and the wait begins anew.)
//  6. From 4, 5, 3 and 2: the challenger's work begins after s + (RenewDeadline + StopGrace)(1+ρ), when the holder's
//     has ended.
//  7. The other way to take a Lease is when it was released. A holder writes that only after its work has ended.
//  8. A Lease whose holder was wiped out or replaced by hand is neither. Challengers wait for LeaseDuration from when
//     they saw it so, and the argument from 2 to 6 holds with s before the edit: after it no update of the holder's
//     succeeds. LeaseDuration is the holder's in all of this, and candidates may differ in theirs. So a challenger
//     waits for the longest one of its own, the record's, and all that it has seen since the Lease was last released or
//     its own: an edit hides what a record asked for, but not from those who have seen it. A challenger that has not,
//     because it was started after the edit, cannot know. Give all candidates the same durations, or start none while a
//     Lease that was edited is being waited for.
//  9. A Lease that was deleted is not there, and absence has no version: between two looks one may have been made, held
//     and deleted. So whoever finds none first makes one that nobody holds, which asks for as long a wait as 8 does,
//     and then waits for that one. ([Config].SkipFirstWait gives this up for a Lease that the candidate has never
//     seen.)
//
// What the tests add to this: an exhaustive search through the states of a model, with crashes, losses, delays,
// drifting clocks, unequal durations, deletions and edits by hand, and thousands of random runs of the real thing. Both
// find the overlap if the deadline is counted from the answer, and the search finds one for each other of these points
// that is left out; 9 is here because they did. From every state of the model somebody comes to lead once nothing more
// goes wrong.
//
// # What a Lease cannot give
//
//   - A process that is paused (SIGSTOP, a frozen machine) after it has checked, and before it has sent, sends when it
//     wakes. The fence ([Elector.Fence]) makes that window as short as one request; the API server checks no tokens, so
//     nothing can close it. Give updates their resourceVersion: then the stale ones fail.
//   - A request that was sent in time may be applied later.
//   - It is no security boundary. Whoever may update the Lease can stop the work, or run it twice. Keep it in a
//     namespace, and under a service account, of its own.
//   - A restored backup of etcd may bring back an old record, released at the time, while somebody leads.
//   - client-go's elector keeps to its own, weaker, rules. See below.
//
// # What the caller owes
//
// The lead function ends all that it started before it returns, and returns within StopGrace when its context ends. If
// it cannot end all of it, it returns an error that wraps ErrStuck. What it writes goes through the fence. It may be
// called again, by another Run, in the same process: what it needs to know it reads anew. When Run returns ErrStuck the
// process exits; [ExitIfStuck] does that.
//
// # Permissions
//
// A Role in the namespace of the Lease; create cannot be limited by name. A candidate that waits asks for its right to
// update by a dry run, and [Elector.Ready] says what is refused. Without watch the Lease is polled, a hand-over takes
// up to RetryPeriod and a fifth, and a change of the Lease's metadata begins a wait anew. Without create the Lease has
// to be there: kubectl create -f a Lease with an empty spec.
//
//	rules:
//	- apiGroups: ["coordination.k8s.io"]
//	  resources: ["leases"]
//	  verbs: ["create"]
//	- apiGroups: ["coordination.k8s.io"]
//	  resources: ["leases"]
//	  resourceNames: ["my-controller"]
//	  verbs: ["get", "update", "watch"]
//
// With [Config].Events, and the recorder of client-go: also create and patch on events, of the API group "".
//
// # Beside client-go's elector
//
// The record is the one that client-go's elector writes, field by field, and each takes over what the other released,
// so that a group may change from one to the other a replica at a time. This package keeps its half of the bargain: it
// never takes a record that a client-go elector has renewed within LeaseDuration, and its holder has stopped before a
// client-go challenger may start. It cannot keep the other half: a client-go elector counts its deadline from the
// answer, and may release before its work has ended.
//
// # Goroutines
//
//	name      started by           ends when                             waited for by
//	observe   Run                  Run is about to return                Run
//	(stream)  observe, per watch   the watch ends                        observe
//	renew     Run, per tenure      the tenure ends                       Run
//	lead      Run, per tenure      the lead function returns             Run, for DrainTimeout or StopGrace; then nobody: ErrStuck
//
// The fence adds a short-lived one for each request that it cuts off at the end of a tenure, and each call of a hook
// has one, which the caller waits for.
//
// # Reading order
//
// config.go, lease.go (the record), client.go (the requests), observe.go (the challenger's side), tenure.go (the
// holder's side), elector.go (Run), handover.go (a word for the next leader), fence.go, report.go (health, numbers,
// events), errors.go.
package leaderelection
