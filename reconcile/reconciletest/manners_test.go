package reconciletest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Keys that write one object wait each for itself; a key that does not wait is found.
func TestAPauseIsThatOfARequestWithItsContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		insists := func(content func(i int) uint64) *breach {
			m, p := newManners(), &process{}
			for i := range 6 {
				g := &gate{request: Request{Verb: "patch", Resource: pods, Name: "a"}, content: content(i), process: p,
					at: time.Now()}
				if found := m.heed(g, disturbance{what: refuse429}, 0); found != nil {
					return found
				}
			}
			return nil
		}
		require.Nil(t, insists(func(i int) uint64 { return uint64(i) }))
		require.NotNil(t, insists(func(int) uint64 { return 7 }))
	})
}

// Two workers that write the same wait each for itself, as client-go makes them. One that comes too early again and
// again is found, also when others wait.
func TestAPauseIsThatOfAWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		come := func(early time.Duration) (found *breach) {
			m, p := newManners(), &process{}
			for range 6 {
				for _, by := range []string{"1", "2"} {
					g := &gate{request: Request{Verb: "update", Resource: pods, Name: "a"}, process: p, by: by,
						at: time.Now()}
					if found == nil {
						found = m.heed(g, disturbance{what: refuse429}, 0)
					}
					time.Sleep(5 * time.Millisecond)
				}
				time.Sleep(pauseAsked - early - 10*time.Millisecond)
			}
			return found
		}
		require.Nil(t, come(0))
		require.NotNil(t, come(time.Millisecond))
	})
}

// Who comes too early now and then, and waits in between, is not found.
func TestAPauseThatWasKeptEndsARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, p := newManners(), &process{}
		for range 4 * mostBroken {
			for _, wait := range []time.Duration{pauseAsked, time.Millisecond} {
				time.Sleep(wait)
				g := &gate{request: Request{Verb: "update", Resource: pods, Name: "a"}, process: p, at: time.Now()}
				require.Nil(t, m.heed(g, disturbance{what: refuse429}, 0))
			}
		}
	})
}

// A write that failed is the reason for what differs if it is about that, and not because it was near.
func TestBlameIsAboutWhatDiffers(t *testing.T) {
	judge := func(f lostWrite, objects ...string) *breach {
		r := &run{scenario: &Scenario{}, server: NewServer(t, Options{}), manners: newManners(), varies: newVariance()}
		r.manners.failed["a write"] = f
		r.failure = &breach{rule: ruleSameEnd, objects: objects}
		verdict{r}.blame()
		return r.failure
	}
	update := lostWrite{how: "touched", object: "pods default/a"}
	create := lostWrite{how: "refused", object: "pods default/"}
	require.Equal(t, ruleRepeats, judge(update, "pods default/a").rule)
	require.Equal(t, ruleRepeats, judge(create, "pods default/a", "pods default/b").rule)
	require.Equal(t, ruleSameEnd, judge(update, "pods default/b").rule)
	require.Empty(t, judge(update, "pods default/b").detail)
	both := judge(update, "pods default/a", "pods default/b")
	require.Equal(t, ruleSameEnd, both.rule)
	require.Equal(t, []string{"never repeated:", "touched"}, both.detail)
}

// What the server has no model of is named, since the program may have failed for that. An Event explains nothing.
func TestBlameNamesWhatIsNotModelled(t *testing.T) {
	r := &run{scenario: &Scenario{}, server: NewServer(t, Options{}), manners: newManners(), varies: newVariance()}
	l := NewServer(t, Options{}).Link()
	clients := kubernetes.NewForConfigOrDie(l.Config())
	ask := func(request Request, err error) {
		require.Equal(t, ReasonNotModelled, apierrors.ReasonForError(err))
		r.heed(&gate{request: request, process: &process{link: l}, code: 501}, disturbance{}, 0)
	}
	unlike := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NodeSpec{PodCIDR: "10.0.0.0/24"}}
	_, err := clients.CoreV1().Nodes().Create(t.Context(), unlike, metav1.CreateOptions{})
	ask(Request{Verb: "create", Resource: corev1.SchemeGroupVersion.WithResource("nodes")}, err)
	event := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	_, err = clients.EventsV1().Events("default").Create(t.Context(), event, metav1.CreateOptions{})
	ask(Request{Verb: "create", Resource: eventsv1.SchemeGroupVersion.WithResource("events")}, err)
	verdict{r}.blame()
	require.Nil(t, r.failure)
	r.failure = &breach{rule: ruleConverges, detail: []string{"a is still there"}}
	verdict{r}.blame()
	require.Len(t, r.failure.detail, 2)
	require.Equal(t, "the program was refused, with 501, create nodes: not modelled: spec.podCIDR of nodes; for all "+
		"fields, set Options.Kinds to the Kinds of package "+
		"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin", r.failure.detail[1])
}

// After a conflict another write of the object may be what the program wants.
func TestAConflictIsOverWithTheNextWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, p := newManners(), &process{}
		ask := func(verb, name string, code int) {
			m.heed(&gate{request: Request{Verb: verb, Resource: pods, Name: name}, process: p, code: code},
				disturbance{}, 0)
		}
		ask("update", "a", 409)
		ask("patch", "b", 200)
		require.Len(t, m.failed, 1)
		ask("patch", "a", 200)
		require.Empty(t, m.failed)
	})
}

// What admission forbids, such as in a namespace that ends, is no right that is missing.
func TestOnlyRolesLackRights(t *testing.T) {
	create := Request{Verb: "create", Resource: pods, Namespace: "default"}
	lacks := func(l *Link) bool {
		m := newManners()
		_ = l.authorize(create, "a") // says by the link what is missing
		m.heed(&gate{request: create, process: &process{link: l}, code: 403}, disturbance{}, 0)
		return len(m.refused) > 0
	}
	require.False(t, lacks(NewServer(t, Options{}).Link()))
	restricted := NewServer(t, Options{Roles: []string{"testdata/config/rbac.yaml"}})
	require.True(t, lacks(restricted.LinkAs(ServiceAccount("nowhere", "nobody"))))
	require.False(t, lacks(restricted.Link()))

	// An apply that creates needs the right to create as well: the request itself is one that the user may make.
	l, m := restricted.LinkAs(ServiceAccount("default", "greeter")), newManners()
	update := Request{Verb: "update", Resource: pods.GroupVersion().WithResource("configmaps"), Namespace: "default"}
	require.True(t, l.may(update))
	require.Error(t, l.authorize(create, "a"))
	m.heed(&gate{request: update, process: &process{link: l}, code: 403}, disturbance{}, 0)
	require.Equal(t, usage{use{"default", "", "pods", "create"}: true}, m.refused)
}
