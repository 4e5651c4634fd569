package main

import (
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	v1 "github.com/thermostat-go/thermostat/examples/cronbackup/api/v1"
	"github.com/thermostat-go/thermostat/examples/cronbackup/api/v1alpha1"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
	"github.com/thermostat-go/thermostat/reconcile/webhook"
)

// stored is how many objects TestMigration stores in the old version.
var stored = flag.Int("stored", 300, "objects that TestMigration stores in v1alpha1")

// lifetimes are as short as they can be if the API server is to notice changes in time, also on a busy machine: a CA is
// replaced after 48 s.
var lifetimes = webhook.Lifetimes{CA: 72 * time.Second, Leaf: 12 * time.Second, Overlap: 4 * time.Second}

// TestMigration stores objects in v1alpha1, installs the version of the operator that has v1, has half of the objects
// written anew, reads all in both versions again and again while certificates and CA are replaced and the replicas are
// restarted one after the other, has the rest written, and takes v1alpha1 away. No request fails, but for lists that
// are answered with 429 while the API server fills its cache anew, because the caBundle has changed.
func TestMigration(t *testing.T) {
	long := lifetimes
	if *stored > 1000 { // the API server converts all of them again whenever the definition changes
		long = webhook.Lifetimes{CA: 6 * time.Minute, Leaf: time.Minute, Overlap: 20 * time.Second}
	}
	p := newPlane(t, long)
	p.define(onlyVersion("v1alpha1"))
	p.store(*stored)
	p.define(asItIs)
	p.install("webhooks.yaml")
	replicas := []*replica{p.start(), p.start()}
	for _, r := range replicas {
		require.Eventually(t, r.ready.Load, 2*time.Minute, 100*time.Millisecond)
	}

	require.Eventually(t, func() bool { // the API server notices the CA of the conversion a little later
		_, err := p.backups(v1.GroupVersion).Get(t.Context(), nameOf(0), metav1.GetOptions{})
		return err == nil
	}, time.Minute, 100*time.Millisecond)
	p.rewrite(*stored / 2)
	answered, failed := p.conversions()
	reads, began := p.read(*stored), time.Now()
	for rotations := 0; rotations < 2; rotations++ {
		before := p.ca()
		require.Eventually(t, func() bool { return p.ca() != before }, 10*time.Minute, 100*time.Millisecond)
		for i, r := range replicas {
			replicas[i] = r.replace()
		}
		t.Logf("after %s: the CA has changed, and both replicas are others; %d reads",
			time.Since(began).Round(time.Second), reads.gets.done.Load())
	}
	require.Eventually(t, func() bool {
		return reads.gets.done.Load() >= 2*int64(*stored) && reads.lists.done.Load() > reads.lists.refused.Load()
	}, 10*time.Minute, 100*time.Millisecond)
	reads.stop()
	answeredNow, failedNow := p.conversions()
	// When its definition changes, the API server fills its cache of a resource anew, and counts the conversions that
	// it abandons as failed.
	t.Logf("%d objects; %s; conversions: %d, and %d that failed or were abandoned", *stored,
		time.Since(began).Round(time.Second), answeredNow-answered, failedNow-failed)
	for what, reads := range map[string]*requests{"GET": &reads.gets, "LIST": &reads.lists} {
		t.Logf("%d %s, of which refused with 429: %d, failed: %d", reads.done.Load(), what, reads.refused.Load(),
			reads.failed.Load())
		if last := reads.last.Load(); last != nil {
			require.NoError(t, *last, what)
		}
	}
	require.Zero(t, reads.gets.refused.Load())
	require.False(t, p.http2.Load(), "API servers use HTTP/1.1 for Services")
	require.GreaterOrEqual(t, answeredNow-answered, *stored)

	p.rewrite(*stored)
	p.migrated()
	p.define(onlyVersion("v1"))
	for _, r := range replicas {
		r.end()
	}
	require.NoError(t, p.cluster.Restart(t.Context(), cluster.APIServer))
	require.NoError(t, p.cluster.Ready(t.Context()))
	list, err := p.backups(v1.GroupVersion).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err, "nothing needs the webhook any more")
	require.Len(t, list.Items, *stored)
	for _, o := range list.Items {
		require.NoError(t, converted(&o))
	}
}

// TestTakenAway: a webhook and a conversion are taken away as the documentation of package webhook says.
func TestTakenAway(t *testing.T) {
	p := newPlane(t, webhook.Lifetimes{})
	p.define(asItIs)
	p.install("webhooks.yaml")
	replica := p.start()
	require.Eventually(t, replica.ready.Load, 2*time.Minute, 20*time.Millisecond)
	replica.end() // the next program does not name them

	hooks := p.client(schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"},
		"mutatingwebhookconfigurations")
	without := p.objects("webhooks.yaml")[2]
	require.Equal(t, "MutatingWebhookConfiguration", without.GetKind())
	without.Object["webhooks"] = []any{}
	require.True(t, apierrors.IsInvalid(p.applied(without)), "the caBundle stays")
	_, err := hooks.Patch(t.Context(), without.GetName(), types.JSONPatchType,
		[]byte(`[{"op": "remove", "path": "/webhooks/0"}]`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.NoError(t, p.applied(without))
	left, err := hooks.Get(t.Context(), without.GetName(), metav1.GetOptions{})
	require.NoError(t, err)
	require.Empty(t, left.Object["webhooks"])

	none := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1",
		"kind": "CustomResourceDefinition", "metadata": map[string]any{"name": plural},
		"spec": map[string]any{"conversion": map[string]any{"strategy": "None"}}}}
	apply := func(force bool) error {
		_, err := p.definitions().Apply(t.Context(), plural, none, metav1.ApplyOptions{FieldManager: "another",
			Force: force})
		return err
	}
	err = apply(false)
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.NotContains(t, err.Error(), `with "webhook"`, "the operator owns no strategy")
	require.True(t, apierrors.IsInvalid(apply(true)), "the caBundle stays")
	_, err = p.definitions().Patch(t.Context(), plural, types.MergePatchType,
		[]byte(`{"spec": {"conversion": {"strategy": "None", "webhook": null}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.NoError(t, apply(false))
}

// TestWebhooks is about what the API server does with the answers.
func TestWebhooks(t *testing.T) {
	p := newPlane(t, webhook.Lifetimes{})
	p.define(asItIs)
	p.install("webhooks.yaml")
	backups, old := p.backups(v1.GroupVersion), p.backups(v1alpha1.GroupVersion)
	create := func(in dynamic.ResourceInterface, gv schema.GroupVersion, name string, spec map[string]any,
		dryRun ...string) (*unstructured.Unstructured, error) {
		return in.Create(t.Context(), object(gv, name, spec), metav1.CreateOptions{DryRun: dryRun})
	}
	var err error
	early := func() error {
		_, err = create(backups, v1.GroupVersion, "early", map[string]any{"targetDatabase": "orders"}, metav1.DryRunAll)
		return err
	}
	// The API server notices the configuration a little later, and the certificate of the replica.
	require.Eventually(t, func() bool { return apierrors.IsInternalError(early()) }, time.Minute, 20*time.Millisecond,
		"nothing answers")
	require.ErrorContains(t, err, `failed calling webhook "default.cronbackups.backups.example.com"`)

	replica := p.start()
	require.Eventually(t, replica.ready.Load, 2*time.Minute, 20*time.Millisecond)
	require.Eventually(t, func() bool { // the CAs of the webhooks and of the conversion are noticed one by one
		_, converts := create(old, v1alpha1.GroupVersion, "early", map[string]any{"database": "orders"},
			metav1.DryRunAll)
		return early() == nil && converts == nil
	}, time.Minute, 20*time.Millisecond, "it answers, and converts")
	schedule := func(o *unstructured.Unstructured) string {
		text, _, _ := unstructured.NestedString(o.Object, "spec", "schedule")
		return text
	}
	made, err := create(backups, v1.GroupVersion, "a", map[string]any{"targetDatabase": "orders"})
	require.NoError(t, err)
	require.Regexp(t, `^\d+ \d+ \* \* \*$`, schedule(made))
	tried, err := create(backups, v1.GroupVersion, "b", map[string]any{"targetDatabase": "orders"}, metav1.DryRunAll)
	require.NoError(t, err)
	require.NotEmpty(t, schedule(tried))
	_, err = backups.Get(t.Context(), "b", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err))

	made, err = create(old, v1alpha1.GroupVersion, "c", map[string]any{"database": "orders", "retention": "30d"})
	require.NoError(t, err, "the webhook is for v1: the server converts, asks, and converts back")
	require.NotEmpty(t, schedule(made))
	made, err = backups.Get(t.Context(), "c", metav1.GetOptions{})
	require.NoError(t, err)
	days, _, _ := unstructured.NestedInt64(made.Object, "spec", "retentionDays")
	require.EqualValues(t, 30, days)

	patch := func(patch string) error {
		_, err := backups.Patch(t.Context(), "a", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	err = patch(`{"metadata":{"annotations":{"backups.example.com/skip-cleanup":"maybe"}}}`)
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	cause, ok := apierrors.StatusCause(err, metav1.CauseTypeFieldValueNotSupported)
	require.True(t, ok)
	require.Equal(t, "metadata.annotations[backups.example.com/skip-cleanup]", cause.Field)
	require.NoError(t, patch(`{"spec":{"retentionDays":3}}`))
	require.Contains(t, p.warnings.text(), "backups that are older than 3 days will be deleted")

	replica.end()
	require.True(t, apierrors.IsInternalError(patch(`{"spec":{"retentionDays":4}}`)))
}
