// Package webhook serves the webhooks of an operator for its own types: conversion between the versions of a
// CustomResourceDefinition, defaults, and validation.
//
//	hooks, err := webhook.New(webhook.Options{
//		Handlers: map[string]*webhook.Handler{
//			"/convert": webhook.Conversions(
//				webhook.Convert(v1alpha1.GroupVersion, v1.GroupVersion, v1alpha1.ToV1),
//				webhook.Convert(v1.GroupVersion, v1alpha1.GroupVersion, v1alpha1.FromV1)),
//			"/default":  webhook.Default(v1.GroupVersion, fill),
//			"/validate": webhook.Validate(v1.GroupVersion, check),
//		},
//		Certificates: &webhook.Certificates{
//			REST: base, Secret: types.NamespacedName{Namespace: "cronbackup", Name: "cronbackup-webhook"},
//			Hosts: []string{"cronbackup.cronbackup.svc"}, CRDs: []string{"cronbackups.backups.example.com"},
//			Mutating: []string{"cronbackup"}, Validating: []string{"cronbackup"},
//		},
//	})
//	server, err := serve.New(serve.Options{
//		ReadyChecks: map[string]func(*http.Request) error{"webhooks": hooks.Ready}, ...
//	})
//	m, err := reconcile.NewManager(reconcile.ManagerOptions{
//		Throughout: map[string]func(context.Context) error{"webhooks": hooks.Run}, Serve: server.Run, ...
//	})
//
// # Where it is served
//
// On a port of its own, beside leadership: every replica answers, from the beginning of the Manager's Run until its
// end. Not with package serve: its AccessReviews guard every handler, and an API server brings no token. So every pod
// that can connect may call, and an answer must say nothing that the caller did not. The bodies of all calls together
// are limited.
//
// It is served before the caches are complete, and it has to be: where objects are stored in another version than the
// program reads, the first list needs the conversion. A function that reads a cache has to be prepared for one that is
// empty. For the same reason the readinessProbe of the pod asks this port and not that of package serve, whose /readyz
// waits for the caches:
//
//	readinessProbe: {httpGet: {path: /readyz, port: 9443, scheme: HTTPS}}
//	lifecycle: {preStop: {sleep: {seconds: 5}}}
//
// The pause before the end is for the Service, which leads to a pod for some seconds after its deletion has begun. Its
// publishNotReadyAddresses is false, or it would lead there until the end. API servers keep connections to it alive, of
// HTTP/1.1. So when Run is to end it answers for 2 s more, and has each connection closed after an answer. One that was
// idle in all of these 2 s is closed then: a call that is sent in this moment fails, since HTTP/1.1 cannot prevent it.
//
// # What is promised
//
//   - A call that cannot be judged is never answered with yes: a function that fails or panics, a body that is too
//     large, an object of another kind are HTTP errors, and the failurePolicy of the webhook decides.
//   - An object that does not fit its Go type is refused with 400. One that is stored can be repaired, and deleted, if
//     the function of Validate says that it can judge that: see Handler.AllowOldInvalid. While it is being deleted an
//     update that only takes finalizers from it is allowed without a call.
//   - What a Go type does not have is kept by Default, and lost by a conversion.
//   - A conversion does not change names, UIDs, owners or finalizers, whatever the function returns.
//   - With Certificates no write and no read fails because a certificate is renewed: each certificate that a replica
//     may use is trusted by each caBundle that an API server may have, if API servers notice a change of their
//     configurations within Lifetimes.Overlap.
//   - A Secret that cannot be read, or has been damaged, does not end what is served. If it is deleted, all is made
//     anew at once, as after a theft of keys; calls may fail until each replica and API server has noticed.
//
// # What the API server does
//
// It waits for timeoutSeconds, 10 by default, for admission, and 30 s for a conversion. If there is no answer, the
// failurePolicy decides about an admission: Fail, the default, answers the write with 500. A conversion that fails
// makes the request fail, a list of all objects included, and has no policy. Custom resources are converted one by one,
// when an API server reads them from its storage.
//
// When a CustomResourceDefinition changes, which a new CA does to it, the API server fills its cache of that resource
// anew and converts each object again, one after the other. Until it has, it answers lists and watches with 429: for a
// minute if there are 10,000 objects on a machine with two cores. GETs and writes go on. That happens two or three
// times in the life of a CA; a new leaf changes nothing there. So Lifetimes.CA should be long, and many objects should
// be stored in the new version soon: a machine so busy that it converted 90 of 10,000 objects a second did not complete
// the list in 20 minutes, since requests end after one.
//
// # Taking a webhook away
//
// The caBundle is the program's by server-side apply. So a webhook that is taken out of a manifest stays, without all
// but its name and caBundle, when that manifest is applied server-side, as Flux and Argo CD do: the API server refuses
// that as Invalid. The same holds for strategy: None of a conversion. Take it away in three steps: roll out a program
// that does not name the configuration in Certificates, or names it for other webhooks; update the object, which no
// ownership prevents:
//
//	kubectl patch mutatingwebhookconfiguration NAME --type=json -p '[{"op": "remove", "path": "/webhooks/0"}]'
//	kubectl patch crd NAME --type=merge -p '{"spec": {"conversion": {"strategy": "None", "webhook": null}}}'
//
// and apply the new manifest. A configuration without any webhook left is deleted at once.
//
// # Storage migration
//
// An object stays in the version in which it was last written. To be rid of an old version: serve both, store the new
// one (storage: true), have everything written again (kubectl get ... -o yaml | kubectl replace, or an update without a
// change of each object by a program: an API server stores it in the new version), remove the old one from
// storedVersions in the status of the CustomResourceDefinition, and then from its versions. examples/cronbackup has a
// test that does.
//
// # Tests
//
// The server in memory of package reconciletest calls the webhooks of a program that runs with a context of its Link,
// and so does Check: over TLS, in virtual time, with their failures. Nothing listens on the network then.
//
// # Reading order
//
// handler.go, then admission.go with patch.go, and conversion.go. server.go. Certificates: authority.go, which has no
// I/O, configuration.go, and certificates.go.
package webhook
