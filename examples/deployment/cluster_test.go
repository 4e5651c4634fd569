package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/informer"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// These tests run on a real control plane, whose ReplicaSet controller makes the pods.

// web creates a Deployment called web, of n pods of the image good-0.
func (s *side) web(t *testing.T, n int32, change ...func(*appsv1.Deployment)) {
	t.Helper()
	_, err := s.client.AppsV1().Deployments(s.namespace).Create(t.Context(), deployment("web", n, "good-0", change...),
		metav1.CreateOptions{})
	require.NoError(t, err)
}

func (s *side) patchWeb(t *testing.T, patch string, args ...any) {
	t.Helper()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	require.NoError(t, s.patch(t.Context(), d, patch, args...))
}

func (s *side) imageWeb(t *testing.T, image string) {
	t.Helper()
	s.patchWeb(t, `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":%q}]}}}}`, image)
}

// complete waits until web has n pods, all of one image and available, and returns its ReplicaSets by image.
func (s *side) complete(t *testing.T, n int32, image string) map[string]*appsv1.ReplicaSet {
	t.Helper()
	var sets map[string]*appsv1.ReplicaSet
	require.Eventually(t, func() bool {
		d, err := s.client.AppsV1().Deployments(s.namespace).Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil || !complete(d, d.Status) || *d.Spec.Replicas != n {
			return false
		}
		sets = s.setsOfWeb(t)
		return sets[image] != nil && *sets[image].Spec.Replicas == n
	}, 3*time.Minute, 50*time.Millisecond, "%d pods of %s", n, image)
	return sets
}

func (s *side) setsOfWeb(t *testing.T) map[string]*appsv1.ReplicaSet {
	t.Helper()
	list, err := s.client.AppsV1().ReplicaSets(s.namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	sets := map[string]*appsv1.ReplicaSet{}
	for i := range list.Items {
		require.NotContains(t, sets, imageOf(&list.Items[i]), "two ReplicaSets for one template")
		sets[imageOf(&list.Items[i])] = &list.Items[i]
	}
	return sets
}

// A client scales a Deployment and its ReplicaSet to the same size while no Deployment controller runs. The built-in
// controller finds the annotation desired-replicas of the ReplicaSet stale, and takes that for a Deployment that was
// just scaled; it finds the size right, and leaves the annotation as it is. So it begins no rollout ever after.
// This controller does.
func TestTheBuiltInControllerHangs(t *testing.T) {
	t.Parallel()
	cluster := shared(t)
	s := newSide(t, cluster, "hangs")
	builtIn := runBuiltIn(t, cluster, s.namespace)
	s.web(t, 3)
	before := s.complete(t, 3, "good-0")
	require.NoError(t, builtIn.Kill(t.Context()))
	s.patchWeb(t, `{"spec":{"replicas":5}}`)
	_, err := s.client.AppsV1().ReplicaSets(s.namespace).Patch(t.Context(), before["good-0"].Name, types.MergePatchType,
		[]byte(`{"spec":{"replicas":5}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	builtIn, err = builtIn.Restart(t.Context())
	require.NoError(t, err)
	s.complete(t, 5, "good-0")

	s.imageWeb(t, "good-1")
	var seen time.Time
	require.Eventually(t, func() bool {
		d, ok := s.deployments.Get(informer.Key{Namespace: s.namespace, Name: "web"})
		seen = time.Now()
		return ok && imageOfTemplate(d) == "good-1" && d.Status.ObservedGeneration == d.Generation
	}, time.Minute, 20*time.Millisecond, "the built-in controller sees the new template")
	const patience = 15 * time.Second // a rollout takes one or two
	for time.Since(seen) < patience {
		require.Len(t, s.setsOfWeb(t), 1, "the built-in controller has begun the rollout: it does not hang any more")
		time.Sleep(500 * time.Millisecond)
	}
	require.NoError(t, builtIn.Kill(t.Context()))

	runOurs(t, cluster, s.namespace)
	s.complete(t, 5, "good-1")
	t.Logf("the built-in controller did nothing for %v; this one was done %v after its start", patience,
		time.Since(seen.Add(patience)).Round(time.Millisecond))
}

func imageOfTemplate(d *appsv1.Deployment) string { return d.Spec.Template.Spec.Containers[0].Image }

// Either controller takes over from the other, with its ReplicaSets as they are: the hash in their names is another
// one, and the template is the same.
func TestEitherControllerTakesOver(t *testing.T) {
	t.Parallel()
	cluster := shared(t)
	s := newSide(t, cluster, "hand-over")
	builtIn := runBuiltIn(t, cluster, s.namespace)
	s.web(t, 3)
	s.complete(t, 3, "good-0")
	s.imageWeb(t, "good-1")
	theirs := s.complete(t, 3, "good-1")
	require.NoError(t, builtIn.Kill(t.Context()))

	stop := runOurs(t, cluster, s.namespace)
	s.patchWeb(t, `{"spec":{"replicas":4}}`)
	require.Equal(t, theirs["good-1"].UID, s.complete(t, 4, "good-1")["good-1"].UID)
	s.imageWeb(t, "good-2")
	ours := s.complete(t, 4, "good-2")
	s.imageWeb(t, "good-0") // back to what the other one has made
	require.Equal(t, theirs["good-0"].UID, s.complete(t, 4, "good-0")["good-0"].UID)
	stop()

	_, err := builtIn.Restart(t.Context())
	require.NoError(t, err)
	s.imageWeb(t, "good-2") // back to what we have made
	all := s.complete(t, 4, "good-2")
	require.Equal(t, ours["good-2"].UID, all["good-2"].UID)
	require.Len(t, all, 3)
	hash, err := hashOf(&s.get(t).Spec.Template, nil)
	require.NoError(t, err)
	require.Equal(t, "web-"+hash, all["good-2"].Name)
	for name, set := range theirs {
		require.Equal(t, set.Name, all[name].Name)
	}
	require.Equal(t, "5", s.get(t).Annotations[revisionAnnotation])
}

func (s *side) get(t *testing.T) *appsv1.Deployment {
	t.Helper()
	d, err := s.client.AppsV1().Deployments(s.namespace).Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	return d
}

// All that kubectl rollout does works with this controller.
func TestKubectlRollout(t *testing.T) {
	t.Parallel()
	cluster := shared(t)
	s := newSide(t, cluster, "kubectl")
	runOurs(t, cluster, s.namespace)
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := kubectlCommand(t, cluster, s.namespace, args...).CombinedOutput()
		require.NoError(t, err, "%q: %s", args, out)
		return string(out)
	}
	s.web(t, 3, func(d *appsv1.Deployment) {
		d.Annotations = map[string]string{"kubernetes.io/change-cause": "the first"}
	})
	require.Contains(t, kubectl("rollout", "status", "deployment/web", "--timeout=180s"), "successfully rolled out")
	kubectl("set", "image", "deployment/web", "c=good-1")
	kubectl("annotate", "deployment/web", "kubernetes.io/change-cause=the second", "--overwrite")
	kubectl("rollout", "status", "deployment/web", "--timeout=180s")
	s.complete(t, 3, "good-1")
	// An annotation is no part of a rollout, and comes to the ReplicaSet some time after it.
	second := regexp.MustCompile(`(?s)1 +the first\n2 +the second\n`)
	require.Eventually(t, func() bool { return second.MatchString(kubectl("rollout", "history", "deployment/web")) },
		time.Minute, 50*time.Millisecond)
	require.Contains(t, kubectl("rollout", "history", "deployment/web", "--revision=1"), "good-0")

	kubectl("rollout", "undo", "deployment/web")
	s.complete(t, 3, "good-0")
	require.Regexp(t, `(?s)2 +the second\n3 +the first\n`, kubectl("rollout", "history", "deployment/web"))
	kubectl("rollout", "undo", "deployment/web", "--to-revision=2")
	s.complete(t, 3, "good-1")

	kubectl("rollout", "pause", "deployment/web")
	kubectl("set", "image", "deployment/web", "c=good-2")
	require.Eventually(t, func() bool {
		c := find(s.get(t).Status.Conditions, progressing)
		return s.get(t).Status.ObservedGeneration == s.get(t).Generation && c != nil && c.Reason == reasonPaused
	}, time.Minute, 50*time.Millisecond)
	require.Len(t, s.setsOfWeb(t), 2)
	kubectl("rollout", "resume", "deployment/web")
	s.complete(t, 3, "good-2")
	kubectl("rollout", "restart", "deployment/web")
	require.Contains(t, kubectl("rollout", "status", "deployment/web", "--timeout=180s"), "successfully rolled out")
	require.Contains(t, kubectl("wait", "--for=condition=Available", "deployment/web", "--timeout=180s"),
		"condition met")
	require.Eventually(t, func() bool {
		return strings.Contains(kubectl("describe", "deployment/web"), "ScalingReplicaSet")
	}, time.Minute, 50*time.Millisecond, "an Event")
	require.Contains(t, kubectl("get", "deployment/web"), "3/3")

	// A rollout that comes to its deadline.
	s.patchWeb(t, `{"spec":{"progressDeadlineSeconds":2,"template":{"metadata":{"annotations":{"standin/ready-after":`+
		`"never"}}}}}`)
	out, err := kubectlCommand(t, cluster, s.namespace, "rollout", "status", "deployment/web",
		"--timeout=180s").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "exceeded its progress deadline")
}

func kubectlCommand(t *testing.T, cluster *testcluster.Cluster, namespace string, args ...string) *exec.Cmd {
	t.Helper()
	programs, err := testcluster.Assets(context.Background())
	require.NoError(t, err)
	return exec.CommandContext(t.Context(), filepath.Join(programs, "kubectl"),
		append([]string{"--kubeconfig", cluster.Kubeconfig(), "--namespace", namespace}, args...)...)
}
