// Package rights checks at the start of a program whether RBAC grants what it needs. One clear error then is better
// than a controller that runs, and whose every request is refused.
//
//	err := rights.Check(ctx, cfg, rights.Needs{
//		"": { // all namespaces: a ClusterRole
//			rights.Rule("backups.example.com", "cronbackups", "list", "watch", "patch"),
//			rights.Rule("backups.example.com", "cronbackups/status", "update"),
//			rights.Rule("batch", "cronjobs", "list", "watch", "create", "patch", "delete"),
//		},
//		"backups": rights.Lease("cronbackup"), // one namespace: a Role
//	})
//
// Parse reads the same from the manifest that grants it. The error names everything that is missing, and shows the
// rules to add as they stand in a manifest. A test can find out what a program uses: reconciletest's Link.Used returns
// rules in the form of [Needs].
//
// # What each helper of the library needs
//
//	informer.New, NewNamespaced     list, watch      what is followed, in each namespace that is
//	with a selector for one name    list, watch      may be granted for that resourceName only
//	reconcile.For, Owns, Watches    nothing          beside what their informers need
//	reconcile.TrackWrites           nothing          beside list, which the informers have: late writes are looked up
//	objects.CreateOwned             create, get      the object; get is used if it exists already
//	objects.DeleteOwned             delete           the object
//	objects.Claim                   patch            the objects that are adopted or released
//	                                get              the owner, before an adoption
//	objects.Apply                   patch            the object, or its status subresource with ApplyStatus
//	                                create           the object, where the apply may be the first one
//	objects.ApplyOwned              create, patch    the object
//	                                get              the object, if the cache does not show it yet
//	                                get              the owner, before an adoption
//	objects.Exactly                 patch            the object
//	objects.ReplaceOwned            create, patch    the object; the patch is a dry run
//	                                delete           the object
//	objects.ApplySet                as ApplyOwned    the objects, and delete
//	objects.Drift                   get, patch       the object; the patch is a dry run
//	                                create           the object, where it may be missing
//	objects.Finalize                patch            the object
//	objects.UpdateStatus            update           the status subresource
//	                                get              the object, after a conflict
//	leaderelection.New              create           leases of coordination.k8s.io; cannot be limited to a name
//	                                get, update      the one Lease
//	                                watch            the one Lease; without it hand-overs take longer
//	sharding.New                    create, get,     leases of coordination.k8s.io; cannot be limited to names, as
//	                                list, watch,     those of the replicas' Leases are made up
//	                                update, delete
//	events.NewRecorder              create, patch    events of the group "", as client-go's record package does; in
//	                                                 the namespace default for objects in no namespace
//	serve.Options.AccessReviews     create           tokenreviews of authentication.k8s.io, in no namespace
//	                                create           subjectaccessreviews of authorization.k8s.io, in no namespace
//	webhook.Certificates            get, update      the one Secret
//	                                create           secrets, unless the Secret is there; cannot be limited to a name
//	                                get, patch       the mutatingwebhookconfigurations and
//	                                                 validatingwebhookconfigurations of admissionregistration.k8s.io
//	                                                 and the customresourcedefinitions of apiextensions.k8s.io
//	                                                 that it names
//	rights.Check                    nothing          every authenticated user may ask for itself
//
// Beside these come the requests that your Reconcile makes itself. A server-side apply of an object that does not exist
// needs create beside patch, a dry run as well. objects.CreateOwned, ApplyOwned and Claim write owner references that
// block the deletion of the owner; a server with the admission plugin OwnerReferencesPermissionEnforcement, such as
// OpenShift's, asks for update on the finalizers subresource of the owner then.
//
// Who reads /metrics of a server with serve.Options.AccessReviews needs get on the nonResourceURL /metrics.
//
// # Reading order
//
// rights.go: the error first, then Check. manifest.go: rules from a manifest.
package rights
