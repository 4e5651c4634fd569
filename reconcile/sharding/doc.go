// Package sharding lets all replicas of a controller work at once, each on its own share of the keys. They agree on the
// shares through Leases alone: there is no component of its own, no label on objects and no webhook.
//
//	shards, err := sharding.New(sharding.Options{REST: base, Namespace: "prod", Name: "my-controller"})
//	...
//	cfg, err := reconcile.ClientConfig(base, shards) // where an Elector fits
//	...
//	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: controllers, Elector: shards})
//
// # What a Manager does with it
//
//   - The workers run in all replicas. A run of a key begins where the key's slice is led, and nowhere else: a slice is
//     not given away while a run in it goes on. The ctx of a run ends when its slice is lost, or others have asked for
//     the slice and DrainTimeout has passed.
//   - A write that a run makes with its ctx is refused when its slice is no longer led. One that is made with another
//     ctx is refused when the replica leads no slice at all: nobody can tell to which one it belongs.
//   - An owner that gives a slice away says with it how far caches have to be to show what it has written. The next
//     owner waits for that. If it does not know that, as after the crash of an owner, all caches of the controllers
//     list anew: the owner may have just written something. After 20 s the keys run even so, and the log says so, as
//     an error. Slices that come meanwhile wait for that, and then for themselves. Then all keys of the slice are
//     queued that the objects in the caches name, in the priority of a first list.
//   - Controller.Why and the pages of package inspect say who leads a key.
//
// What is different from a single leader:
//
//   - Keys of one controller run in several processes at once. A Reconciler that keeps a state across keys in memory,
//     such as which ports are taken, has a part of it only.
//   - ManagerOptions.WhileLeading is refused, since no process leads all slices. [Shards.While], in Beside, runs a
//     function in one replica: that which leads a key. What Beside and Throughout have without it runs in all replicas,
//     and now also writes in all of them: a fence of slices lets a write pass that is no run's, and that of an elector
//     lets only the leader's pass.
//   - A delay ends with a move of its slice, and the key runs at once: a RequeueAfter, that of failures, and a
//     Retry-After of the server, too. So does a pause: see Controller.Pause.
//   - A key that Enqueue or WatchesChan names has to be named in each replica: it runs in the one that leads it. So a
//     request to a webhook, which comes to one replica, is not enough. The others keep a key for an hour, or longer, in
//     case its slice comes, if no cache has its object; and the same for one that was deleted. A RequeueAfter of such a
//     key does not outlive a move that comes later.
//
// The package's example is a whole program.
//
// # Caches
//
// An informer with [informer.Options].Shard keeps the objects of this replica's slices only, so memory and the time for
// decoding fall with the share. [Keys] is for the objects that the keys are of, and with [ByNamespace] for all that
// live in the namespace of theirs; [Owned] for what they own; [Of] for the rest. A cache without a Shard is whole, and
// both kinds may stand side by side. A [informer.Referenced] keeps what the objects of this replica's caches name.
//
//   - A replica that wants slices of others fills its caches first, by one list each beside the watch, while their
//     owners go on, also those that leave. So the keys of a slice that is handed over with its word wait for no list,
//     unless the owner leaves and two lists in a row take longer than it waits. Slices whose owner has died come
//     without, and their keys wait until all caches have them. The keys of other slices go on. At the start each cache
//     lists twice: before the replica is in the table it keeps nothing.
//   - A cache that cannot list, as without the right to, or when its CustomResourceDefinition is gone, holds up each
//     slice that comes, whichever kind or namespace its keys need, for as long as that lasts: a key that does not see
//     its objects would make them again. A slice stays with an owner that stays, and its keys run there. One that
//     leaves gives it away when its time is up, and then its keys run nowhere. The log says so after 10 s, and
//     [Shards.Health] after LeaseDuration, with what the server has answered. Namespaces that were refused from the
//     start hold up nothing. For that reason the informers of a Dynamic of package reconcile cannot have a Shard.
//   - A slice that was given away leaves the caches, and no key is named. Where a cache is read for a key of another
//     replica, as by [informer.SharedIndexInformer.Get] in a handler for HTTP, "not found" says nothing: [Shards.Owns]
//     tells whether a key is this replica's. Reconcile reads what is in the slice of its own key.
//   - The next owner does not name the keys of objects that are deleted while their slice has no owner, or one whose
//     watch is late, unless a whole cache or an object that they owned names them: what has to be done for a deleted
//     object needs a finalizer.
//   - The server sends all objects to all replicas. It is not asked to filter: internals.md says why.
//
// # Without a Manager
//
//	err = shards.Run(ctx, func(ctx context.Context) error { // again while the error wraps ErrLost
//		settle := func(ctx context.Context, words []string, all bool) { /* wait until the caches are up to date */ }
//		opened := func(slices []int) { /* queue the keys of these slices */ }
//		shards.Inherit(ctx, settle, opened)
//		return nil
//	})
//	...
//	ctx, leave, err := shards.Enter(ctx, key) // in front of each run of a key
//	if err != nil {
//		return nil // another replica has the key
//	}
//	defer leave()
//
// The requests go through [Shards.Fence].
//
// # Words
//
// The keys are cut into slices by a hash, of the namespace by default. Each replica has one Lease of its own, which it
// renews. The table, the annotation of another Lease, says which replica owns which slice. The time for which a replica
// may work is its tenure: from one acknowledged renewal of its Lease until RenewDeadline after it was sent. A replica
// works on a slice in its tenure, while the table names it as the owner. To free a slice, its owner has stopped.
//
// # The protocol
//
//	Lease my-controller            annotation: the table. Changed by conditional updates only
//	Lease my-controller-f3k9...    of replica a, renewed every RetryPeriod by a
//	Lease my-controller-x82m...    of replica b
//
//	join         a replica makes its Lease, under a name that nobody has had before, and then adds itself to the table
//	claim        one that has less than its share asks in the table for slices of those who have more, when it is
//	             prepared for them, and has been a member for LeaseDuration
//	hand over    their owner ends its work on them, and makes the one that has asked their owner, in one write, with a
//	             word of what it has written
//	leave        one that is told to end has the table say that it leaves. It gets no slices any more, and works on its
//	             own, while the others prepare for them and ask for them as above. When nobody asks for the rest in
//	             time, or there is nobody, it lets no work begin any more: the table says so, and each slice is given
//	             away as soon as its work has ended, with such a word
//	remove       one whose Lease has stood unchanged for LeaseDuration is removed: its Lease first, on the condition
//	             that it has still not changed, and then its name from the table. Its slices go to the others, in one
//	             write, by whoever is first
//
// One list and one watch of the group's Leases show a replica all of that. The table is a Lease, too, for that reason:
// objects of one kind have one order, so whoever has seen a table has seen every Lease that was made before it. Also, a
// Role for Leases is all that is needed. The annotation has some 4 KiB for 256 slices and 50 replicas, and at most
// 32 KiB of words.
//
// Requests do not grow with slices: each replica renews one Lease in a RetryPeriod, and a move of any number of slices
// between two replicas costs two writes. Events do grow with the square of the replicas, as each one watches all: 50
// replicas are 25 renewals a second, and 1,250 events a second at the server.
//
// # Why two replicas do not work on one slice
//
// The assumptions are those of package leaderelection: clocks that are off by 5 % at most, a server that applies
// conditional writes one after the other, and no pause longer than the margin.
//
//  1. Versions of the table are one after the other, each made from the one before by one of the changes above. So a
//     slice changes its owner in two ways: by a write of its owner, or by one that removes the owner.
//  2. An owner sends the write that gives a slice away after its work has ended. It does not begin again on the
//     strength of what it remembers: only when it has seen a later version of the table, in which it is still the
//     owner and nobody asks for the slice. The write, whose answer may have been lost, was based on one in which
//     somebody did. So it fails for good. One that ends gives away what nobody asks for, too, and never begins again.
//  3. Whoever removes a replica has seen its Lease at version r, read at b, and has waited on its own clock. Either r
//     has stood for LeaseDuration, and the deletion on the condition that it is still r has succeeded, at d: then no
//     renewal after r was acknowledged, and none will be. Or a read by name, answered at b, has not found the Lease,
//     and LeaseDuration has passed: then none was acknowledged that was sent after b, and none will be, for a replica
//     never makes its Lease again.
//  4. So the removed replica's last acknowledged renewal was sent at s <= b. Its work ends by
//     s + (RenewDeadline + StopGrace)(1+ρ), which is before b + LeaseDuration(1-ρ): [New] refuses other durations. A
//     timer ends the work's context at the deadline; work that does not return makes Run return [ErrStuck], and the
//     process must exit. The write that gives its slices away comes later than that.
//  5. A replica works only on what the table names it for, under its present name. It may have seen an old version: in
//     every later one it still is the owner, unless it has given the slice away, and it remembers the latest version
//     that it has seen, or it was removed, and then 4 holds.
//  6. A process that goes on after it has lost its tenure is another replica, with another name and another Lease, and
//     begins when the work of the one before has ended. So does a process that restarts. The one that has not restarted
//     still knows for how long it has seen the Leases of others stand still: it is the same clock.
//
// The deadline, the wait and the margin are those of a Lease; exclusion of slices follows from it by the table, without
// a renewal for each slice.
//
// # When the table is deleted or edited
//
// The text of the table begins with a sum of the rest. One that does not fit, or that is gone, ends the life of the
// table: whoever sees that ends its tenure. The next table begins a new life, in which no slice has an owner until
// somebody opens it. It may do so when it has watched the new table for LeaseDuration without a Lease of anyone who is
// not in the table. Whoever worked in the earlier life had a Lease when the new one began, and joins the new life as
// another replica, when its work has ended; if its Lease is gone, the wait is over when its tenure is. So nobody works
// for LeaseDuration, and somewhat more if work takes long to end. The first table waits likewise, once in the life of a
// group.
//
// # From an elector to shards, and back
//
// Give the table the Name of the elector's Lease. Shards do not take such a Lease, whether somebody holds it or not:
// they wait, work on nothing, and [Shards.Ready] says why. So an update that begins while the old leader works does no
// harm: the new replicas do not become ready, and a rolling update stops at the first one. Stop all old replicas, and
// delete the Lease: then the shards begin. Under another Name neither knows of the other, and a rolling update has both
// at work: then only the strategy Recreate, or a time without replicas, keeps them apart.
//
// On the way back stop all replicas before. An elector takes the table's Lease, if it has that name, and the replicas
// that see it stop: but it does not wait for them.
//
// # When a Lease of a replica is deleted or edited
//
// Its replica notices that by its next renewal, ends its work and joins again. Meanwhile the others wait, as in 3. An
// edit that leaves it in place is overwritten, and makes the others wait anew. A label that was removed is put back.
//
// # What it cannot give
//
//   - What a Lease cannot give, see package leaderelection: one request in flight of a process that is paused at the
//     worst moment; no security boundary. Keep the Leases in a namespace of their own: whoever may update them can have
//     two replicas work on one slice. An edit of the table that mends the sum is such a way, and so is an old backup of
//     etcd.
//   - A slice is given away when the calls in it have returned. A write of theirs that was sent, and not answered, by a
//     goroutine that they have left or by a call that has timed out, may be applied later: the next owner's list does
//     not show it. With one leader, and while a slice stays, such a write holds its key back.
//   - All replicas need the same Options.By and ByKeyIn. One that has others gets no slices, and is not ready. It has a
//     Lease all the same, so a table that is made anew opens when it has joined, as when any replica has.
//   - All replicas need the same durations, as an edit may hide from others what a replica had.
//   - A replica that renews its Lease and is otherwise stuck keeps its slices, until others ask for them. From then on
//     no new work begins in these, and a call that does not return keeps all keys of its slice from running, in all
//     replicas, until its process restarts. [Shards.Health] finds such slices, in all replicas, as it finds those that
//     nobody leads; [Shards.Check], and with it /healthz of a Manager, fails where the call is.
//   - Shares are even in slices, not in work. [Stats] has the runs of each slice and what they took, so that a hot one
//     is seen. There are no weights, and a hot slice is not split by itself. The remedy is to cut it finer, where the
//     keys of a namespace do not depend on each other: by [ByKey], or by Options.ByKeyIn for some namespaces.
//   - Labels on both sides: a Lease that loses its label by hand is invisible until it is renewed.
//
// # Permissions
//
// A Role in the namespace of the Leases. The names of the replicas' Leases are made up, so it cannot name them: that
// is one more reason for a namespace of their own.
//
//	rules:
//	- apiGroups: ["coordination.k8s.io"]
//	  resources: ["leases"]
//	  verbs: ["create", "get", "list", "watch", "update", "delete"]
//
// # Goroutines
//
//	name      started by         ends when                          waited for by
//	observe   Run                Run is about to return             Run
//	(stream)  observe, a watch   the watch ends                     observe
//	lead      Run                lead returns                       Run, unless it returns ErrStuck
//	renew     Run                the tenure ends                    Run
//	act       Run                the tenure ends                    Run
//	prepare   Run                the tenure ends                    Run; it calls Prepare
//
// internals.md says how package reconcile uses this one and what is missing, and has figures, reasons, and the reading
// order.
package sharding
