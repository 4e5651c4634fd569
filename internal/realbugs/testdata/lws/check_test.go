package check

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	lws "sigs.k8s.io/lws/api/leaderworkerset/v1"
	"sigs.k8s.io/lws/pkg/controllers"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

// run is main without flags, certificates and webhooks.
func run(ctx context.Context, cfg *rest.Config) error {
	scheme, again := runtime.NewScheme(), true
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, lws.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: scheme,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &again}})
	if err != nil {
		return err
	}
	if err := controllers.SetupIndexes(mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if err := setUp(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// labelPods is what the webhook for pods does for groups of one pod.
func labelPods(w http.ResponseWriter, r *http.Request) {
	review, pod := &admissionv1.AdmissionReview{}, &corev1.Pod{}
	if err := json.NewDecoder(r.Body).Decode(review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := json.Unmarshal(review.Request.Object.Raw, pod); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	if pod.Labels[lws.SetNameLabelKey] != "" {
		group := pod.Name[strings.LastIndex(pod.Name, "-")+1:]
		patch, kind := []map[string]string{}, admissionv1.PatchTypeJSONPatch
		for label, value := range map[string]string{lws.GroupIndexLabelKey: group, lws.GroupUniqueHashLabelKey: group} {
			patch = append(patch, map[string]string{"op": "add", "value": value,
				"path": "/metadata/labels/" + strings.ReplaceAll(label, "/", "~1")})
		}
		review.Response.Patch, _ = json.Marshal(patch) // strings can be marshalled
		review.Response.PatchType = &kind
	}
	_ = json.NewEncoder(w).Encode(review) // a client that is gone gets no answer
}

const webhook = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: lws}
webhooks:
- name: mpod.kb.io
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {service: {namespace: lws-system, name: lws, path: /mutate--v1-pod}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
`

// set has what the webhook would default.
const set = `
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: serve, namespace: default}
spec:
  replicas: 2
  rolloutStrategy:
    type: RollingUpdate
    rollingUpdateConfiguration: {maxUnavailable: 0, maxSurge: 1}
  networkConfig: {subdomainPolicy: Shared}
  leaderWorkerTemplate:
    size: 1
    restartPolicy: RecreateGroupOnPodRestart
    workerTemplate: {spec: {containers: [{name: c, image: %q}]}}
`

func TestLeaderWorkerSet(t *testing.T) {
	reconciletest.Check(t, reconciletest.Scenario{
		Run: run,
		Server: reconciletest.Options{CRDs: []string{"crd"}, Rules: cel.Rules{}, Kinds: builtin.Kinds(),
			Webhooks: map[string]http.Handler{"lws.lws-system.svc": http.HandlerFunc(labelPods)}},
		World: &reconciletest.World{Fails: func(o reconciletest.Object) bool {
			pod, ok := o.(*corev1.Pod)
			return ok && pod.Spec.Containers[0].Image == "broken"
		}},
		Steps: reconciletest.ApplyYAML(webhook+"---"+fmt.Sprintf(set, "broken"), fmt.Sprintf(set, "right")),
		Settled: func(s *reconciletest.Server) error {
			for _, pod := range reconciletest.List[*corev1.Pod](s, "pods", "default") {
				if image := pod.Spec.Containers[0].Image; image != "right" {
					return fmt.Errorf("the pod %s has the image %s", pod.Name, image)
				}
			}
			return nil
		},
	})
}
