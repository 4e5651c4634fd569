// Package leaderelection lets one of several processes work at a time. They agree on it through a coordination/v1
// Lease.
//
//	elector, err := leaderelection.New(leaderelection.Config{REST: cfg, Namespace: "prod", Name: "my-controller"})
//	...
//	err = elector.Run(ctx, func(ctx context.Context) error { return work(ctx) }) // ctx ends when the tenure does
//
// Among the packages of this library: every candidate keeps its caches up to date, and a Manager starts the workers,
// (4), only while it leads.
//
//	            informer                                          workqueue        reconcile
//	API   -list-> Reflector -> DeltaFIFO -> Indexer -> handlers --key-> Queue --key-> worker -> Reconcile(ctx, key)
//	server -watch->  (1)              (2)     |           (3)                          (4)            |
//	  ^                                       +------------------ Get / index lookups ----|-----------+
//	  +------------------------------- create / update / patch / delete ------------------|-----------+
//	  |                                                                                   |
//	  |  ========================= leaderelection ==================================      | runs while
//	  +--Lease--> observe --> campaign --> hold: lead(ctx), renew, await --> release      it leads
//	     ============================================================================
//
// # Words
//
// The Lease is an object that names its holder. A candidate campaigns for it: it observes the Lease and, when it is
// free, acquires it by a conditional update. It watches the Lease (observer.follow), so it acquires a released one at
// once. From then on it leads: it runs the lead function and renews the Lease. The time for which it may do so is a
// tenure. A tenure ends when the lead function has returned, or when the tenure is lost. The other candidates are
// challengers.
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
//	challenger   :     :  reads r          r stands unchanged on its own clock     :        acquires
//	             :     :    |-------------------------------------------------------------------|---
//	             :     :    b                                        LeaseDuration             b+15
//
// The holder counts from 0, when it SENT the renewal, and not from a, when the answer arrived: the server may have
// written r at any moment between the two, and the challenger may have read it that early. The challenger counts from
// b, when it had READ r. See tenure.extend (tenure.go) and observation.since (view.go). At the deadline the fence
// (fence.go) cancels each request under way that writes: the server may still carry it out.
//
// # Why two tenures do not overlap
//
// Assume that a clock that measures d takes between d(1-ρ) and d(1+ρ) of true time (ρ is 5 %), that
// the server carries out conditional updates one by one, and that no process is paused for longer than the margin
// that the checked inequality (3) leaves.
//
//  1. Let h be the holder's last acknowledged write, sent at s, and r the resourceVersion that it made. Later tries
//     were not acknowledged; the server may have carried them out or not.
//  2. The work ends by s + (RenewDeadline + StopGrace)(1+ρ). A timer of the holder (tenure.go, await) ends the work's
//     context at RenewDeadline after s, whatever the network does, and the work returns within StopGrace. If it does
//     not, or returns an error that wraps ErrStuck because some of it goes on, Run returns ErrStuck, the Lease is not
//     released, and the process must exit.
//  3. [New] refuses durations unless (RenewDeadline + StopGrace)(1+ρ) < LeaseDuration(1-ρ).
//  4. A challenger acquires the holder's Lease at a resourceVersion q. It has read q's record at some time b, and the
//     record has stood for LeaseDuration on its clock, so not before b + LeaseDuration(1-ρ). Between b and q there may
//     be other versions, with other metadata, if a watch without a gap has shown each of them, all with the same
//     record.
//  5. The record of q is r's or that of a later one of the holder's writes: the update is conditional, and no two of
//     the holder's writes have the same record, since each has a later renewTime. A record is read after it was
//     written, and written after it was sent: s <= b. (Across a gap, as between two looks of a challenger that may
//     not watch, the holder may have renewed, and an edit by hand may have put the old record back. So there another
//     version counts as another record, and the wait begins again.)
//  6. From 4, 5, 3 and 2: the challenger's work begins after s + (RenewDeadline + StopGrace)(1+ρ), when the holder's
//     has ended.
//  7. The other way to acquire a Lease is after its release. A holder releases it only after its work has ended.
//  8. A Lease whose holder was wiped out or replaced by hand is not released. Challengers wait for LeaseDuration from
//     when they saw it so, and the argument from 2 to 6 holds with s before the edit, because no update of the
//     holder's succeeds after it. LeaseDuration is the holder's in all of this, and candidates may differ in theirs.
//     An edit hides the holder's duration, but not from those that have seen it. So a challenger waits for the longest
//     of these: its own duration, that of the record, and those of all records that it has seen since the Lease was
//     last released or it last held the Lease itself. A
//     challenger that was started after the edit cannot know it. Give all candidates the same durations, or start
//     none while an edited Lease is being waited for.
//  9. A Lease that does not exist has no version: between two looks one may have been created, held and deleted. So
//     the first candidate that finds none creates one without a holder, which records as long a wait as 8 requires,
//     and then waits for that one. ([Config].SkipFirstWait omits this for a Lease that the candidate has never seen.)
//
// The tests search all states of a model, with crashes, losses, delays, drifting clocks, unequal durations, deletions
// and edits by hand, and make thousands of random runs of the real elector. Both find the overlap if the deadline is
// counted from the answer, and the search finds one if any other of these points is left out. From every state of the
// model a candidate comes to lead once there are no more faults.
//
// # What a Lease cannot give
//
//   - A process that is paused (SIGSTOP, a frozen machine) after it has checked that it leads, and before it has sent a
//     request, sends it when it continues. The fence ([Elector.Fence]) makes that window as short as one request; the
//     API server checks no tokens, so nothing can close it. Give updates their resourceVersion: then the stale ones
//     fail.
//   - A request that was sent in time may be carried out later.
//   - It is no security boundary. Any client that may update the Lease can stop the work, or have two processes do it.
//     Keep the Lease in a namespace, and under a service account, of its own.
//   - A restored backup of etcd may bring back an old, released record while a candidate leads.
//   - client-go's elector keeps weaker rules. See below.
//
// # When the Lease is deleted
//
// The holder loses its tenure when its watch, or its next renewal, shows that: after RetryPeriod at the latest. The
// lead function's context ends with a *[LostError] of [ReasonDeleted], and Run returns an error that wraps [ErrLost].
// There is nothing to release. The first candidate that finds no Lease creates one without a holder, and all of them
// wait for LeaseDuration (9 above): nobody leads for that time. So to delete a Lease is no way to hand over.
//
// # What the caller owes
//
// The lead function ends everything that it started before it returns, and returns within StopGrace when its context
// ends. If some of it cannot be ended, it returns an error that wraps ErrStuck. Its writes go through the fence. It may
// be called again, by another Run in the same process, so it reads anew what it needs to know. When Run returns
// ErrStuck the process exits; [ExitIfStuck] does that.
//
// # Permissions
//
// A Role in the namespace of the Lease; create cannot be limited by name. A waiting candidate checks by a dry run that
// it may update the Lease, and [Elector.Ready] says what is refused. Without watch the Lease is polled: a hand-over
// takes up to 1.2 RetryPeriods, and a change of the Lease's metadata restarts a wait. Without create the Lease has to
// exist: kubectl create -f a Lease with an empty spec.
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
// The record is the one that client-go's elector writes, field by field, and each acquires what the other released, so
// a group may change from one to the other a replica at a time. This package never acquires a record that a client-go
// elector has renewed within LeaseDuration, and its holder has stopped before a client-go challenger may start. The
// reverse does not hold: a client-go elector counts its deadline from the answer, and may release before its work has
// ended.
//
// # Goroutines
//
//	name      started by           ends when                             waited for by
//	observe   Run                  Run is about to return                Run
//	(stream)  observe, per watch   the watch ends                        observe
//	renew     Run, per tenure      the tenure ends                       Run
//	lead      Run, per tenure      the lead function returns             Run, at most DrainTimeout or StopGrace
//
// The fence has a short-lived one for each request that it cuts off at the end of a tenure.
//
// # Reading order
//
// config.go, elector.go (Run), candidate.go (what the parts of an elector share), lease.go (the record), view.go and
// observe.go (what a candidate has seen), campaign.go (how it acquires the Lease), lead.go (the lead function),
// tenure.go (the deadline, its timer and the end), renew.go, handover.go (a text for the next leader), fence.go,
// client.go, report.go (numbers, health, events), failures.go, errors.go. Then internal/election: the arithmetic of the
// deadline, the connection, and what the fence lets through.
package leaderelection
