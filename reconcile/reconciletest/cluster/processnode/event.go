package processnode

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// recorder is the part of a pool that writes Events.
type recorder struct{ *Pool }

// event hands over an Event about a pod to be written. If a thousand wait already, it is dropped.
func (r recorder) event(pod *corev1.Pod, node, kind, reason, message string) {
	now := metav1.Now()
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: pod.Name + ".", Namespace: pod.Namespace},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name,
			UID: pod.UID},
		Type: kind, Reason: reason, Message: message[:min(len(message), 1000)], Count: 1, FirstTimestamp: now,
		LastTimestamp: now, Source: corev1.EventSource{Component: "processnode", Host: node},
	}
	select {
	case r.events <- e:
	default:
	}
}

// run writes Events until the pool ends. One that cannot be written is dropped: its namespace may be on its way
// out.
func (r recorder) run() {
	for {
		select {
		case <-r.ctx.Done():
			return
		case e := <-r.events:
			_, _ = r.client.CoreV1().Events(e.Namespace).Create(r.ctx, e, metav1.CreateOptions{})
		}
	}
}
