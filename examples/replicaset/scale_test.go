package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// scaling is one call of scale for a ReplicaSet that wants that many pods and has some, with an API server that answers
// as told.
func scaling(t *testing.T, replicas int32, have int, verb string, answer func(n int) error) (calls int, events []string,
	err error) {
	t.Helper()
	api := inMemory(t)
	rs := api.createRS(testRS(func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = &replicas }))
	var mine []*corev1.Pod
	for i := range have {
		mine = append(mine, api.createPod(testPod(types.UID(fmt.Sprint(i)), ownedBy(rs.UID))))
	}
	var n atomic.Int64
	api.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
		if r.Verb != verb || r.Resource.Resource != "pods" {
			return nil
		}
		err := answer(int(n.Add(1)))
		if status := apierrors.APIStatus(nil); err != nil && !errors.As(err, &status) {
			return func(context.Context, func() (*http.Response, error)) (*http.Response, error) { return nil, err }
		} else if err != nil {
			return reconciletest.Refuse(err)
		}
		return nil
	})
	recorder := record.NewFakeRecorder(2 * burst)
	r := &replicaSetReconciler{server: api.server, events: recorder}
	err = r.scale(t.Context(), rs, objects.NewOwner(r.server.replicaSets.In("ns"), rs, kind), mine, testNow)
	for _, deletion := range api.sent("DELETE pods") {
		require.NotContains(t, deletion.body, "gracePeriodSeconds")
		require.NotContains(t, deletion.body, "preconditions")
	}
	close(recorder.Events)
	for e := range recorder.Events {
		events = append(events, e)
	}
	return int(n.Load()), events, err
}

func fine(int) error { return nil }

var pods = schema.GroupResource{Resource: "pods"}

func TestScaleUpStopsAtABurst(t *testing.T) {
	calls, events, err := scaling(t, 3, 1, "create", fine)
	require.NoError(t, err)
	require.Equal(t, 2, calls)
	require.Len(t, events, 2)
	require.Regexp(t, "^Normal SuccessfulCreate Created pod: web-.....$", events[0])

	calls, _, err = scaling(t, 700, 100, "create", fine)
	require.NoError(t, err)
	require.Equal(t, 500, calls)
}

// All that can go wrong with a creation is treated alike: an event, and the error of the first doomed request, after
// which there are no more.
func TestFailedCreate(t *testing.T) {
	for name, failure := range map[string]error{
		"quota":         apierrors.NewForbidden(pods, "", errors.New("exceeded quota")),
		"name taken":    apierrors.NewAlreadyExists(pods, "web-1"),
		"no namespace":  apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "ns"),
		"invalid":       apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web-1", nil),
		"too many":      apierrors.NewTooManyRequests("slow down", 1),
		"server":        apierrors.NewInternalError(errors.New("broken")),
		"no answer":     context.DeadlineExceeded,
		"not available": apierrors.NewServiceUnavailable("later"),
	} {
		t.Run(name, func(t *testing.T) {
			calls, events, err := scaling(t, 100, 0, "create", func(int) error { return failure })
			require.ErrorContains(t, err, failure.Error())
			require.Equal(t, 1, calls)
			require.Equal(t, []string{"Warning FailedCreate Error creating: " + err.Error()}, events)
		})
	}
	quota := apierrors.NewForbidden(pods, "", errors.New("exceeded quota"))
	calls, events, err := scaling(t, 100, 0, "create", func(n int) error {
		if n > 5 {
			return quota
		}
		return nil
	})
	require.EqualError(t, err, quota.Error())
	require.Equal(t, 1+2+4, calls, "a batch is finished, and no other begun")
	require.Len(t, events, 7)
}

// There is nothing to be told or tried again where everything is about to go.
func TestCreateWhileTheNamespaceGoes(t *testing.T) {
	going := apierrors.NewForbidden(pods, "", errors.New("because it is being terminated"))
	going.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause,
		Field: "metadata.namespace"}}
	calls, events, err := scaling(t, 100, 0, "create", func(int) error { return going })
	require.NoError(t, err)
	require.Equal(t, 1, calls)
	require.Empty(t, events)
}

func TestScaleDown(t *testing.T) {
	calls, events, err := scaling(t, 1, 3, "delete", fine)
	require.NoError(t, err)
	require.Equal(t, 2, calls)
	require.Len(t, events, 2)
	require.Regexp(t, "Normal SuccessfulDelete Deleted pod: pod-[0-2]", events[0])

	calls, _, err = scaling(t, 100, 700, "delete", fine)
	require.NoError(t, err)
	require.Equal(t, 500, calls)
}

// Each pod that is too much gets its request, whatever comes of the others. One that is gone already is none of
// anybody's business.
func TestFailedDelete(t *testing.T) {
	calls, events, err := scaling(t, 0, 40, "delete", func(n int) error {
		switch n % 4 {
		case 0:
			return apierrors.NewNotFound(pods, "gone")
		case 1:
			return apierrors.NewInternalError(errors.New("broken"))
		default:
			return nil
		}
	})
	require.ErrorContains(t, err, "unable to delete pods: ")
	require.ErrorContains(t, err, "Internal error occurred: broken")
	require.Equal(t, 40, calls)
	warnings := slices.DeleteFunc(slices.Clone(events), func(e string) bool { return strings.HasPrefix(e, "Normal ") })
	require.Len(t, events, 30)
	require.Len(t, warnings, 10)
	require.Regexp(t, "^Warning FailedDelete Error deleting: .*Internal error occurred: broken$", warnings[0])
}

func TestPodFor(t *testing.T) {
	rs := testRS(func(rs *appsv1.ReplicaSet) {
		rs.Spec.Template.Annotations = map[string]string{"note": "kept"}
		rs.Spec.Template.Finalizers = []string{"example.com/kept"}
		rs.Spec.Template.Name = "not-kept"
	})
	yes := true
	pod, err := podFor(rs, ownerOf(rs))
	require.NoError(t, err)
	require.Equal(t, metav1.ObjectMeta{
		GenerateName: "web-", Namespace: "ns",
		Labels:      map[string]string{"app": "web", "tier": "front"},
		Annotations: map[string]string{"note": "kept"},
		Finalizers:  []string{"example.com/kept"},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs-uid", Controller: &yes,
			BlockOwnerDeletion: &yes,
		}},
	}, pod.ObjectMeta)
	require.Equal(t, rs.Spec.Template.Spec, pod.Spec)

	pod.Labels["app"], pod.Spec.Containers[0].Image = "changed", "changed"
	require.Equal(t, "web", rs.Spec.Template.Labels["app"], "the template is copied, not shared")
	require.Equal(t, "i", rs.Spec.Template.Spec.Containers[0].Image)
}

func ownerOf(rs *appsv1.ReplicaSet) *objects.Owner {
	return objects.NewOwner((*informer.Resource[*appsv1.ReplicaSet])(nil), rs, kind)
}

func TestPodForWithoutLabels(t *testing.T) {
	_, err := podFor(testRS(func(rs *appsv1.ReplicaSet) { rs.Spec.Template.Labels = nil }), ownerOf(testRS()))
	require.ErrorContains(t, err, "no labels")
}

func TestWanted(t *testing.T) {
	require.Equal(t, 3, wanted(testRS()))
	require.Equal(t, 1, wanted(testRS(func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = nil })))
}
