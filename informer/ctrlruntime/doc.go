// Package ctrlruntime gives a manager of controller-runtime a cache of those objects only that are named, such as the
// 200 Secrets that the objects of an operator name, of 33,000 in the cluster. It is [informer.NewReferenced] in the
// types of controller-runtime: a client.Reader, and a source of requests. It is a module of its own, since
// controller-runtime brings much.
//
//	secrets, err := ctrlruntime.New(m, corev1.SchemeGroupVersion.WithResource("secrets"),
//		informer.Options[*corev1.Secret]{})
//	changes, err := ctrlruntime.References(ctx, m, secrets, &v1.Website{}, func(w *v1.Website) []client.ObjectKey {
//		return []client.ObjectKey{{Namespace: w.Namespace, Name: w.Spec.Secret}}
//	})
//	err = ctrl.NewControllerManagedBy(m).For(&v1.Website{}).WatchesRawSource(changes).
//		Complete(&reconciler{m.GetClient(), secrets})
//
// The reconciler reads Secrets with secrets.Get, and everything else with the manager's client. The rights to list and
// watch the Secrets are enough, be it with resourceNames, and get is not needed.
//
// # What holds
//
//   - An object is followed from when an object of the manager's cache names it until none does.
//   - [Named.Get] returns NotFound only if the server has said that there is no such object since it is named. It waits
//     until the server has said anything, as a controller of controller-runtime cannot park a key.
//   - Each change of a named object, its creation and its deletion enqueue the objects that name it.
//
// # What is different
//
//   - The manager's cache options (namespaces, selectors, transforms) are not those of this cache, which has
//     [informer.Options]. It still holds nothing that no object names.
//   - A Get of a Secret with the manager's client makes the manager cache all Secrets again, without a word. Name the
//     kind in client.CacheOptions.DisableFor, or set cache.Options.ReaderFailOnMissingInformer.
//   - The manager does not wait for the named objects before its controllers start: Get does.
//   - A key whose Get is refused fails, and is tried again by its controller. If the right to the Secrets is missing,
//     every key that names one fails; a controller that expects this returns RequeueAfter in place of the error.
//   - A name costs a watch, of some 40 kB here and 70 in the server, up to informer.Options.MaxWatches names in a
//     namespace; 10 kB here and 5 there beyond. [informer.Referenced] has the figures.
//
// named.go has the cache, references.go what names its objects.
package ctrlruntime
