package events_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/events"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// Code that was written for client-go's recorder compiles with this one.
var _ record.EventRecorder = (*events.Recorder)(nil)

// world is a server in memory, and a recorder that runs.
type world struct {
	*testing.T
	*events.Recorder
	link *reconciletest.Link
	list func() []*corev1.Event
	stop func()
}

// inVirtualTime runs a test with a recorder that runs. What the server refuses or delays is up to fault.
func inVirtualTime(t *testing.T, test func(*world)) {
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{Namespaces: []string{"default", "other"}})
		w := &world{T: t, link: server.Link()}
		recorder, err := events.NewRecorder(w.link.Config(), "tester")
		require.NoError(t, err)
		w.Recorder = recorder
		direct, err := informer.NewResource[*corev1.Event](server.Config(),
			corev1.SchemeGroupVersion.WithResource("events"), informer.ResourceOptions{})
		require.NoError(t, err)
		w.list = func() []*corev1.Event {
			t.Helper()
			list, err := direct.List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			return list.Items
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- recorder.Run(ctx) }()
		stopped := false
		w.stop = func() {
			if cancel(); !stopped {
				stopped = true
				require.NoError(t, <-ended)
			}
		}
		defer w.stop()
		test(w)
	})
}

// writes returns how many requests have been made, by verb.
func (w *world) writes() map[string]int {
	n := map[string]int{}
	for _, r := range w.link.Requests() {
		n[r.Verb]++
	}
	return n
}

func object(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: name, UID: "uid-of-a", ResourceVersion: "7"}}
}

func TestAnEventSaysWhatItIsAbout(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		began := time.Now()
		w.AnnotatedEventf(object("a"), map[string]string{"k": "v"}, corev1.EventTypeWarning, "Broken", "%d of %d", 1, 2)
		synctest.Wait()
		list := w.list()
		require.Len(w, list, 1)
		e := list[0]
		require.Equal(w, "other", e.Namespace)
		require.True(w, strings.HasPrefix(e.Name, "a."), e.Name)
		require.Equal(w, map[string]string{"k": "v"}, e.Annotations)
		require.Equal(w, corev1.ObjectReference{Kind: "ConfigMap", APIVersion: "v1", Namespace: "other", Name: "a",
			UID: "uid-of-a", ResourceVersion: "7"}, e.InvolvedObject)
		require.Equal(w, []string{"Warning", "Broken", "1 of 2", "tester", "tester"},
			[]string{e.Type, e.Reason, e.Message, e.Source.Component, e.ReportingController})
		require.Equal(w, int32(1), e.Count)
		require.True(w, e.FirstTimestamp.Time.Equal(began) && e.LastTimestamp.Time.Equal(began))
	})
}

// An object in no namespace has its Events in the namespace default; a name that an Event cannot have is left out.
func TestEventsOfOtherObjects(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		role := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "system:node"}}
		w.Event(events.As(role, schemaKind("rbac.authorization.k8s.io", "ClusterRole")), "Normal", "Read", "m")
		w.Event(object(strings.Repeat("x", 253)), "Normal", "Long", strings.Repeat("ä", 1000))
		synctest.Wait()
		require.Len(w, w.list(), 2)
		for _, e := range w.list() {
			switch e.Reason {
			case "Read":
				require.Equal(w, "default", e.Namespace)
				require.True(w, strings.HasPrefix(e.Name, "clusterrole."), e.Name)
				require.Equal(w, "system:node", e.InvolvedObject.Name)
			case "Long":
				require.Len(w, e.Name, 253)
				require.Equal(w, strings.Repeat("ä", 510)+"...", e.Message)
			}
		}
	})
}

func TestTheSameEventIsCounted(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		var held atomic.Bool
		held.Store(true)
		w.link.Inject(func(reconciletest.Request) reconciletest.Fault {
			if held.Load() {
				return reconciletest.Delay(time.Second, 0)
			}
			return nil
		})
		for range 10 { // while the first request is under way
			w.Event(object("a"), "Normal", "Same", "m")
			synctest.Wait()
		}
		time.Sleep(5 * time.Second)
		require.Equal(w, map[string]int{"create": 1, "patch": 1}, w.writes())
		held.Store(false)
		last := time.Now()
		w.Event(object("a"), "Normal", "Same", "m")
		synctest.Wait()
		list := w.list()
		require.Len(w, list, 1)
		require.Equal(w, int32(11), list[0].Count)
		require.True(w, list[0].LastTimestamp.Time.Equal(last))
		require.True(w, list[0].FirstTimestamp.Time.Equal(last.Add(-5*time.Second)))

		other := object("a")
		other.UID = "another"
		w.Event(other, "Normal", "Same", "m")
		w.Event(object("a"), "Warning", "Same", "m")
		synctest.Wait()
		require.Len(w, w.list(), 3)
	})
}

func TestManyMessagesShareOneEvent(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		for i := range 14 {
			w.Eventf(object("a"), "Normal", "Busy", "message %d", i)
			synctest.Wait()
		}
		w.Event(object("a"), "Normal", "Other", "another reason")
		w.Event(object("a"), "Normal", "Busy", "message 3")
		synctest.Wait()
		list := w.list()
		require.Len(w, list, 12)
		count := map[string]int32{}
		for _, e := range list {
			count[e.Message] = e.Count
		}
		require.Equal(w, int32(4), count["(combined from similar events): message 13"])
		require.Equal(w, int32(2), count["message 3"])

		time.Sleep(10 * time.Minute)
		w.Event(object("a"), "Normal", "Busy", "message 99")
		synctest.Wait()
		require.Len(w, w.list(), 13)
	})
}

func TestAnObjectHasALimit(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		for i := range 100 {
			w.Event(object("a"), "Normal", fmt.Sprintf("Reason%d", i), "m")
		}
		w.Event(object("b"), "Normal", "Reason", "m") // another object has a limit of its own
		synctest.Wait()
		require.Equal(w, 26, w.writes()["create"])
		w.Event(object("a"), "Normal", "Reason1", "m") // is counted
		synctest.Wait()
		require.Equal(w, 0, w.writes()["patch"])
		time.Sleep(5 * time.Minute)
		w.Event(object("a"), "Normal", "Reason1", "m")
		w.Event(object("a"), "Normal", "Reason100", "m")
		synctest.Wait()
		require.Equal(w, map[string]int{"create": 26, "patch": 1}, w.writes())
		for _, e := range w.list() {
			if e.Reason == "Reason1" {
				require.Equal(w, map[string]int32{"a": 3, "b": 1}[e.InvolvedObject.Name], e.Count)
			}
		}
	})
}

// Neither a server that does not answer nor many objects make Event wait, or memory grow.
func TestWhatWaitsIsBounded(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		answers := make(chan struct{})
		w.link.Inject(func(reconciletest.Request) reconciletest.Fault {
			return reconciletest.Do(func() { <-answers })
		})
		began := time.Now()
		for i := range 5000 {
			w.Event(object(fmt.Sprintf("object-%d", i)), "Normal", "Reason", "m")
			synctest.Wait()
		}
		require.Zero(w, time.Since(began))
		close(answers)
		synctest.Wait()
		require.Len(w, w.list(), 1001) // one was under way
	})
}

func TestFailuresAreTriedAgain(t *testing.T) {
	for name, failure := range map[string]reconciletest.Fault{
		"503":         reconciletest.Refuse(apierrors.NewServiceUnavailable("starting")),
		"429":         reconciletest.Refuse(apierrors.NewTooManyRequests("slowly", 2)),
		"no network":  reconciletest.Reset,
		"lost answer": reconciletest.LoseAnswer,
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(w *world) {
				failures := 0
				w.link.Inject(func(reconciletest.Request) reconciletest.Fault {
					if failures++; failures <= 5 {
						return failure
					}
					return nil
				})
				w.Event(object("a"), "Normal", "Reason", "m")
				time.Sleep(2 * time.Minute)
				require.Len(w, w.list(), 1)
				require.Equal(w, int32(1), w.list()[0].Count)
			})
		})
	}
}

// What cannot succeed is not tried again, and does not keep others from being written.
func TestARefusalIsFinal(t *testing.T) {
	var log bytes.Buffer
	klog.LogToStderr(false)
	klog.SetOutput(&log)
	defer klog.LogToStderr(true)
	const secret = "hunter2"
	inVirtualTime(t, func(w *world) {
		refused := 0
		w.link.Inject(func(reconciletest.Request) reconciletest.Fault {
			if refused++; refused == 1 {
				return reconciletest.Refuse(apierrors.NewBadRequest("cannot take " + secret))
			}
			return nil
		})
		w.Event(object("a"), "Normal", "First", secret)
		w.Event(object("a"), "Normal", "Second", secret)
		synctest.Wait()
		time.Sleep(time.Minute)
		require.Len(w, w.list(), 1)
		require.Equal(w, 2, refused)
	})
	klog.Flush()
	require.Contains(t, log.String(), "An Event was not written")
	require.Contains(t, log.String(), `object="other/a" reason="First"`)
	require.NotContains(t, log.String(), secret)
}

// The server deletes an Event after its time, and the next one is about all of the series.
func TestAnEventThatIsGoneIsMadeAgain(t *testing.T) {
	inVirtualTime(t, func(w *world) {
		w.Event(object("a"), "Normal", "Reason", "m")
		synctest.Wait()
		direct, err := informer.NewResource[*corev1.Event](w.link.Config(),
			corev1.SchemeGroupVersion.WithResource("events"), informer.ResourceOptions{})
		require.NoError(w, err)
		require.NoError(w, direct.In("other").Delete(w.Context(), w.list()[0].Name, metav1.DeleteOptions{}))
		w.Event(object("a"), "Normal", "Reason", "m")
		synctest.Wait()
		require.Len(w, w.list(), 1)
		require.Equal(w, int32(2), w.list()[0].Count)
	})
}

// What waits at the end is written within a second, and Run does not take longer even if the server hangs.
func TestTheEnd(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		inVirtualTime(t, func(w *world) {
			pause := 50 * time.Millisecond
			if hangs {
				pause = time.Hour
			}
			w.link.Inject(func(reconciletest.Request) reconciletest.Fault { return reconciletest.Delay(pause, 0) })
			for i := range 10 {
				w.Event(object("a"), "Normal", fmt.Sprintf("Reason%d", i), "m")
			}
			began := time.Now()
			w.stop()
			if hangs {
				require.Equal(w, time.Second, time.Since(began))
				require.Empty(w, w.list())
			} else {
				require.Equal(w, 500*time.Millisecond, time.Since(began))
				require.Len(w, w.list(), 10)
			}
			w.Event(object("a"), "Normal", "Late", "m")
			require.Error(w, w.Recorder.Run(w.Context()), "a second Run")
		})
	}
}

func TestMistakesAreNamed(t *testing.T) {
	_, err := events.NewRecorder(nil, "")
	require.ErrorContains(t, err, "NewRecorder: the component has 0 bytes")
	require.ErrorContains(t, err, "nil")
	var log bytes.Buffer
	klog.LogToStderr(false)
	klog.SetOutput(&log)
	defer klog.LogToStderr(true)
	for want, drop := range map[string]func(*events.Recorder){
		"does not carry its kind and apiVersion": func(r *events.Recorder) {
			r.Event(&corev1.Pod{}, "Normal", "A",
				"")
		},
		"the object is nil": func(r *events.Recorder) {
			r.Event((*corev1.Pod)(nil), "Normal", "A",
				"")
		},
		"has no metadata": func(r *events.Recorder) {
			r.Event(&metav1.Status{}, "Normal", "A",
				"")
		},
		"has no name":            func(r *events.Recorder) { r.Event(object(""), "Normal", "A", "") },
		"the type is":            func(r *events.Recorder) { r.Event(object("a"), "Bad", "A", "") },
		"the reason has 0 bytes": func(r *events.Recorder) { r.Event(object("a"), "Normal", "", "") },
	} {
		recorder, err := events.NewRecorder(&rest.Config{Host: "http://127.0.0.1:1"}, "tester")
		require.NoError(t, err)
		log.Reset()
		drop(recorder)
		klog.Flush()
		require.Contains(t, log.String(), want)
		drop(nil) // records nothing
	}
}

func BenchmarkEvent(b *testing.B) {
	recorder, err := events.NewRecorder(&rest.Config{Host: "http://127.0.0.1:1"}, "tester")
	if err != nil {
		b.Fatal(err)
	}
	o := object("a")
	b.ReportAllocs()
	for b.Loop() {
		recorder.Event(o, "Normal", "Reason", "message")
	}
}
