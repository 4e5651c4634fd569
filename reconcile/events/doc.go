// Package events writes Kubernetes Events: what kubectl describe shows below an object.
//
//	recorder, err := events.NewRecorder(cfg, "cronbackup")
//	m, err := reconcile.NewManager(reconcile.ManagerOptions{
//		Controllers: []*reconcile.Controller{c},
//		Beside:      map[string]func(context.Context) error{"events": recorder.Run},
//	})
//
// and in Reconcile
//
//	recorder.Event(backup, corev1.EventTypeNormal, "Scheduled", "the CronJob starts the backups")
//
// A Recorder has the methods of client-go's record.EventRecorder, so code that was written for that one keeps its
// calls. It needs no scheme, no clientset and no broadcaster.
//
// # What is promised
//
//	never blocks      A call of Event takes half a microsecond (AMD EPYC). Run writes in the background, one request at
//	                  a time.
//	one series        The same Event again, with the same object, type, reason and message, raises the count of the
//	                  Event that exists, by a PATCH. Of ten that come while a request is under way, one PATCH tells.
//	ten messages      From the 11th message on that an object gets within 10 minutes for one type and reason, the
//	                  messages share one Event, which begins with "(combined from similar events): ".
//	a spam limit      An object gets 25 writes at once, and then one each 5 minutes. What is over the limit is counted,
//	                  and the next write of that series shows the count; a new series over the limit is dropped.
//	bounded memory    1,000 Events wait to be written at most, and the last 4,096 objects are remembered. What does not
//	                  fit is dropped, and the log says how many.
//	a calm log        A log line names the object and the reason. It never has a message, nor a value of the object.
//	a clean end       When the ctx of Run ends, what waits is written within a second. The rest is dropped, and counted
//	                  in the log.
//
// An Event tells people; it is no place for state. It can be dropped, as above, and the server deletes it an hour after
// its last change unless it was configured otherwise.
//
// A request that fails because of the network, with a status of 500 or more, or with 429 is made again, 12 times in
// about a minute. Any other answer drops the Event. An Event that the server has deleted meanwhile is
// created again, with the count that it had. While a namespace is being deleted the server takes no new Events in it.
//
// # Which API
//
// The Events are those of the core group, v1, and not of events.k8s.io. The server stores both as the same objects, so
// kubectl describe, kubectl get events and kubectl events show either. The core group's have a count and two times,
// which every version of kubectl and every tool that exports Events reads; the Roles of most controllers grant them
// already; and an Event of events.k8s.io cannot change its message, as the one that combines others does.
//
// A Role has to grant create and patch on events of the group "": rights.Rule("", "events", "create", "patch"). For
// objects in no namespace it has to do so in the namespace default, where their Events are.
//
// # Reading order
//
// recorder.go: what is recorded. series.go: which Event it belongs to. writer.go: how that reaches the server.
package events
