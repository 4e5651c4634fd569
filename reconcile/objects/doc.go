// Package objects has helpers for what most Reconcilers do to objects: set conditions, write a status, hold an object
// back until something is cleaned up, claim and create what an object owns, apply. It does not use the loop of package
// reconcile, and works without it: each function takes a context and a client, and makes all of its requests with them.
//
//	mine, err := objects.Claim(ctx, owner, pods, candidates, wanted)
//	_, err = objects.UpdateStatus(ctx, clientset.AppsV1().ReplicaSets(rs.Namespace), rs, setStatus)
//
// # What is promised
//
// Every helper may be called again, after an error, a timeout or a restart: it finds what the last call has done. None
// changes an object that it was given, which may come from a cache. None retries by itself, except [UpdateStatus],
// once, after a conflict. When ctx ends, the request under way fails, and the error wraps what the client returned.
//
//	helper         sends                                                            sends nothing if
//	SetCondition   nothing; FindCondition, RemoveCondition, ConditionTrue neither
//	UpdateStatus   PUT of the status; after a conflict GET and one more PUT         the status is right already
//	Finalize       PATCH of metadata.finalizers                                     the finalizer is as it should be
//	Claim          GET of the owner, once, before the first adoption;               labels and references agree
//	               PATCH of metadata.ownerReferences for each candidate
//	CreateOwned    POST; GET if the name is taken
//	DeleteOwned    DELETE                                                           it is another's, or being deleted
//	Apply          PATCH, a server-side apply
//	ApplyChanges   PATCH, a server-side apply                                       the fields are as applied before
//	ApplyOwned     PATCH, a server-side apply; GET if the name is taken, or of      the fields are as applied before
//	               the owner before an adoption
//	Exactly        PATCH, a JSON patch                                              nobody has added an entry
//	ReplaceOwned   PATCH, a server-side apply with dryRun=All; DELETE               the object can be changed
//	ApplySet       what ApplyOwned, Exactly, ReplaceOwned and DeleteOwned send      all is as wanted
//	Drift          GET; PATCH, a server-side apply with dryRun=All: it writes nothing
//	SlowStart      what its function sends, in batches that double
//
// A JSON patch of Finalize or Claim holds only for the object, by UID, and the list that were seen: it never changes a
// namesake, or undoes what another client has written to the list.
//
// # Children exactly as wanted
//
// [ApplyOwned] gives one child the fields that are configured. What it leaves to be said:
//
//	others have added entries to a map or a list     Exactly removes them
//	the server does not let a field be changed       ReplaceOwned deletes the object, to be made anew
//	an owner reference would do harm                 Owner.ByLabel marks what is owned with a label
//	what was wanted once is wanted no longer         ApplySet applies all children, and deletes the others
//
// # One object, written for several owners
//
// An object that has no single owner, such as a ConfigMap with an entry for each Website, is written in one of two
// ways. Neither loses what is written for another owner at the same time, and both want a source that brings the keys
// back, reconcile.Watches, or reconcile.DependsOn if they need not come back.
//
//   - Each owner applies its own entries, with a field manager of its own and without Force: ExampleApply_shared. An
//     entry that another owner has set to another value is an [*ApplyConflictError], which names that owner's manager.
//     The entries of an owner that applies a configuration without them are removed.
//   - If what is written depends on the entries of others, read the object from a cache and make the change hold for
//     that version only: an Update does, and a merge patch that sets metadata.resourceVersion. If another client was
//     faster, the error is a conflict (apierrors.IsConflict): return it, and the key is reconciled again with a newer
//     cache.
//
// # Rights
//
// What a Role has to grant, beside what the informers need (get, list, watch):
//
//	helper                resource                         verbs
//	UpdateStatus          the object's                     get
//	                      its subresource status           update
//	Finalize              the object's                     patch
//	Claim                 the candidates'                  patch
//	                      the owner's                      get
//	CreateOwned           the child's                      create, get
//	DeleteOwned           the child's                      delete
//	Apply, ApplyChanges   the object's, or its status      patch, and create if it may be missing
//	ApplyOwned            the object's                     patch, create, get
//	                      the owner's                      get, if adopt is not nil
//	Exactly               the object's                     patch
//	ReplaceOwned          the object's                     patch, create, delete
//	ApplySet              the objects'                     patch, create, get, delete
//	Drift                 the object's                     get, patch, and create if it may be missing
//
// Where the admission plugin OwnerReferencesPermissionEnforcement is on, Claim, CreateOwned and ApplyOwned also need
// update on the owner's subresource finalizers.
//
// # Reading order
//
// clients.go (what the helpers need of a client), conditions.go, status.go, finalizer.go, owner.go with label.go,
// claim.go, create.go and delete.go, apply.go, drift.go, applyowned.go with exactly.go and replace.go, applyset.go,
// slowstart.go.
package objects
