package plan_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/plan"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// labeller is a webhook that gives each object a label, and counts what it is asked.
type labeller struct {
	*httptest.Server
	dryRuns, writes atomic.Int32
}

func newLabeller(t *testing.T) *labeller {
	l := &labeller{}
	l.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if review.Request.DryRun != nil && *review.Request.DryRun {
			l.dryRuns.Add(1)
		} else {
			l.writes.Add(1)
		}
		kind := admissionv1.PatchTypeJSONPatch
		patch := `[{"op":"add","path":"/metadata/labels","value":{"injected":"yes"}}]`
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true, PatchType: &kind,
			Patch: []byte(patch)}
		review.Request = nil
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review) // or the server has gone
	}))
	t.Cleanup(l.Close)
	return l
}

// guarded is what a cluster has against writes to a namespace. The quota allows no Secret.
const guarded = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: NAMESPACE}
webhooks:
- name: labels.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {url: "URL", caBundle: CA}
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE, UPDATE]}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAMESPACE}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE, DELETE]}]
  validations:
  - {expression: "request.operation != 'DELETE' || oldObject.metadata.name != 'kept'", message: it is kept}
  - expression: request.operation == 'DELETE' || !has(object.data) || !('forbidden' in object.data)
    message: no such
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAMESPACE}
spec:
  policyName: NAMESPACE
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: quota, namespace: NAMESPACE}
spec: {hard: {count/secrets: "0"}}
`

// guard puts the manifests above into force.
func (c *auditedCluster) guard(t *testing.T, namespace string) *labeller {
	l := newLabeller(t)
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: l.Certificate().Raw}))
	manifests := strings.NewReplacer("NAMESPACE", namespace, "URL", l.URL, "CA", ca).Replace(guarded)
	objects, err := cluster.Decode([]byte(manifests))
	require.NoError(t, err)
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() { // the namespace is deleted after this
		hooks := c.Client().AdmissionregistrationV1()
		require.NoError(t, hooks.MutatingWebhookConfigurations().Delete(ctx, namespace, metav1.DeleteOptions{}))
		require.NoError(t, hooks.ValidatingAdmissionPolicyBindings().Delete(ctx, namespace, metav1.DeleteOptions{}))
	})
	require.NoError(t, c.Apply(t.Context(), objects...))
	ask := kubernetes.NewForConfigOrDie(c.asking()).CoreV1()
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	require.Eventually(t, func() bool {
		_, err1 := ask.ConfigMaps(namespace).Create(ctx, configMap("probe", map[string]string{"forbidden": ""}), dry)
		made, err2 := ask.ConfigMaps(namespace).Create(ctx, configMap("probe", nil), dry)
		_, err3 := ask.Secrets(namespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}, dry)
		return apierrors.IsInvalid(err1) && err2 == nil && made.Labels["injected"] == "yes" &&
			apierrors.IsForbidden(err3) && strings.Contains(err3.Error(), "exceeded quota") // it has a status by now
	}, 3*time.Minute, 100*time.Millisecond)
	return l
}

// asking is the configuration of plans that may send dry runs.
func (c *auditedCluster) asking() *rest.Config {
	cfg := rest.CopyConfig(c.reader)
	cfg.UserAgent = asker
	return cfg
}

// TestAdmissionIsTheClusters has a program whose writes a webhook changes, and a policy, a quota and the validation of
// a kind that is not modelled refuse.
func TestAdmissionIsTheClusters(t *testing.T) {
	c := audited(t)
	namespace := c.Namespace(t)
	maps, ctx := c.Client().CoreV1().ConfigMaps(namespace), t.Context()
	for _, name := range []string{"present", "kept", "made-anew"} {
		_, err := maps.Create(ctx, configMap(name, map[string]string{"a": "1"}), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	require.EventuallyWithT(t, func(t *assertCollect) { // which a controller makes, at some time
		_, err := maps.Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		require.NoError(t, err)
	}, 3*time.Minute, 100*time.Millisecond)
	hook := c.guard(t, namespace)
	before, err := maps.List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	probes, sofar := hook.dryRuns.Load(), c.requireNoWrites(t)

	report, err := plan.Run(ctx, c.asking(), func(ctx context.Context, cfg *rest.Config) error {
		return writeWhatIsGuarded(ctx, kubernetes.NewForConfigOrDie(cfg), namespace)
	}, plan.RunOptions{Quiet: quiet, Options: plan.Options{Admission: true}})
	require.NoError(t, err)
	var text bytes.Buffer
	require.NoError(t, report.WriteText(&text))
	t.Log(text.String())
	require.Equal(t, []string{
		"create ConfigMap " + namespace + "/applied", "delete ConfigMap " + namespace + "/made-anew",
		"create ConfigMap " + namespace + "/made-anew", "create ConfigMap " + namespace + "/new",
		"update ConfigMap " + namespace + "/present", "create DaemonSet " + namespace + "/each",
	}, verbs(report))
	require.Equal(t, []string{"data[a]", "metadata.labels[injected]"}, paths(report.Changes[4]),
		"what the webhook changes is a change")
	var refused []string
	for _, r := range report.Refused {
		refused = append(refused, fmt.Sprintf("%s %s %d", r.Verb, r.Object.Kind, r.Code))
	}
	require.Equal(t, []string{"create daemonsets 422", "create configmaps 422", "delete configmaps 422",
		"create secrets 403"}, refused)
	require.Equal(t, []string{
		"configmaps: a quota is compared with each new object alone, not with all that the program makes",
		"configmaps: " + anotherName,
		"configmaps: " + onTheForkOnly,
		"daemonsets: a quota is compared with each new object alone, not with all that the program makes",
	}, whys(report))

	after, err := maps.List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.Equal(t, before.Items, after.Items)
	require.Positive(t, hook.dryRuns.Load()-probes)
	require.Zero(t, hook.writes.Load(), "the webhook was told that they are dry runs")
	require.Positive(t, c.requireNoWrites(t)-sofar)
}

// writeWhatIsGuarded returns an error unless it sees what the cluster makes of its writes.
func writeWhatIsGuarded(ctx context.Context, c kubernetes.Interface, namespace string) error {
	maps := c.CoreV1().ConfigMaps(namespace)
	made, err1 := maps.Create(ctx, configMap("new", nil), metav1.CreateOptions{})
	if err1 != nil || made.Labels["injected"] != "yes" {
		return fmt.Errorf("the webhook has not changed %v: %w", made, err1)
	}
	made.Data = map[string]string{"b": "2"}
	_, err2 := maps.Update(ctx, made, metav1.UpdateOptions{})
	_, err := maps.Create(ctx, configMap("bad", map[string]string{"forbidden": "1"}), metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) {
		return fmt.Errorf("the policy has let pass what is forbidden: %w", err)
	}
	if err := maps.Delete(ctx, "kept", metav1.DeleteOptions{}); !apierrors.IsInvalid(err) {
		return fmt.Errorf("the policy has let pass a deletion: %w", err)
	}
	present, err3 := maps.Get(ctx, "present", metav1.GetOptions{})
	for n := range 2 { // the second is of a version that the cluster does not have
		present.Data["a"] = fmt.Sprint(n + 2)
		if present, err = maps.Update(ctx, present, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	err4 := maps.Delete(ctx, "made-anew", metav1.DeleteOptions{})
	_, err5 := maps.Create(ctx, configMap("made-anew", nil), metav1.CreateOptions{})
	applied, err6 := maps.Apply(ctx, corev1ac.ConfigMap("applied", namespace).WithData(map[string]string{"a": "1"}),
		metav1.ApplyOptions{FieldManager: "applier"})
	if err6 == nil && applied.Labels["injected"] != "yes" {
		return fmt.Errorf("the webhook has not changed %v", applied)
	}
	_, err = c.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}},
		metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota") {
		return fmt.Errorf("the quota has let pass a Secret: %w", err)
	}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "each"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: podLabels}, Template: template("web:1")}}
	each, err7 := c.AppsV1().DaemonSets(namespace).Create(ctx, set, metav1.CreateOptions{})
	if err7 == nil && each.Spec.Template.Spec.Containers[0].TerminationMessagePath == "" {
		return errors.New("the DaemonSet has no defaults")
	}
	bad := set.DeepCopy()
	bad.Name, bad.Spec.Template.Labels = "bad", map[string]string{"app": "other"}
	if _, err := c.AppsV1().DaemonSets(namespace).Create(ctx, bad, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		return fmt.Errorf("a DaemonSet without pods: %w", err)
	}
	return errors.Join(err1, err2, err3, err4, err5, err6, err7)
}
