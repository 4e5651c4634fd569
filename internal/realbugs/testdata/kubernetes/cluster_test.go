package check

import (
	"context"
	"errors"
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

func TestNamespace(t *testing.T) {
	check(t, names.NamespaceController, reconciletest.Scenario{
		Server: reconciletest.Options{CollectAfter: never},
		Steps: append(reconciletest.ApplyYAML(namespace("team")+namespace("other")+configMap("team", "a", "1")+
			configMap("other", "a", "1"), configMap("team", "b", "1")), reconciletest.Delete("namespaces", "", "team")),
		Settled: func(s *reconciletest.Server) error {
			_, err := there[*corev1.ConfigMap](s, "configmaps", "other", "a")
			return errors.Join(err, gone[*corev1.Namespace](s, "namespaces", "", "team"),
				gone[*corev1.ConfigMap](s, "configmaps", "team", "a"),
				gone[*corev1.ConfigMap](s, "configmaps", "team", "b"))
		},
	})
}

func TestResourceQuota(t *testing.T) {
	of := func(name string, hard int) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: ResourceQuota
metadata: {name: %s, namespace: default}
spec: {hard: {configmaps: "%d", services: "5"}}
---
`, name, hard)
	}
	check(t, names.ResourceQuotaController, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(of("few", 3)+configMap("default", "a", "1")+
			configMap("default", "b", "1"), of("few", 4)+service("web", "web")),
			reconciletest.Delete("configmaps", "default", "a")),
		Settled: func(s *reconciletest.Server) error {
			q, err := there[*corev1.ResourceQuota](s, "resourcequotas", "default", "few")
			if err != nil {
				return err
			}
			number := func(of corev1.ResourceList, name corev1.ResourceName) string {
				n := of[name]
				return n.String()
			}
			return want("hard and used", []string{number(q.Status.Hard, "configmaps"),
				number(q.Status.Used, "configmaps"), number(q.Status.Used, "services")}, []string{"4", "1", "1"})
		},
	})
}

// depend makes a ConfigMap that another one owns.
func depend(name, owner string, blocks bool) reconciletest.Step {
	return reconciletest.StepFunc("make "+name, func(ctx context.Context, cfg *rest.Config) error {
		client := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps("default")
		by, err := client.Get(ctx, owner, metav1.GetOptions{})
		if err != nil {
			return err
		}
		_, err = client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner, UID: by.UID,
				BlockOwnerDeletion: &blocks}}}}, metav1.CreateOptions{})
		return err
	})
}

func TestGarbageCollector(t *testing.T) {
	check(t, names.GarbageCollectorController, reconciletest.Scenario{
		Server: reconciletest.Options{CollectAfter: never},
		Steps: []reconciletest.Step{reconciletest.ApplyYAML(configMap("default", "a", "1") +
			configMap("default", "b", "1") + configMap("default", "c", "1"))[0], depend("of-a", "a", false),
			depend("of-b", "b", true), depend("of-c", "c", false), depend("of-of-a", "of-a", false),
			reconciletest.Delete("configmaps", "default", "a"),
			reconciletest.DeleteWith(metav1.DeletePropagationForeground, "configmaps", "default", "b"),
			reconciletest.DeleteWith(metav1.DeletePropagationOrphan, "configmaps", "default", "c")},
		Settled: func(s *reconciletest.Server) error {
			left := map[string]int{}
			for _, m := range reconciletest.List[*corev1.ConfigMap](s, "configmaps", "default") {
				left[m.Name] = len(m.OwnerReferences)
			}
			return want("left, with their owners", left, map[string]int{"of-c": 0})
		},
	})
}

func TestValidatingAdmissionPolicyStatus(t *testing.T) {
	of := func(name, expression string) string {
		return fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %s}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]
  validations: [{expression: %q}]
---
`, name, expression)
	}
	check(t, names.ValidatingAdmissionPolicyStatusController, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(of("small", "object.spec.replicas < 5")+of("old", "true"),
			of("small", "object.spec.replicas > 'five'")),
			reconciletest.Delete("validatingadmissionpolicies", "", "old")),
		Settled: func(s *reconciletest.Server) error {
			p, err := there[*admissionv1.ValidatingAdmissionPolicy](s, "validatingadmissionpolicies", "", "small")
			if err != nil {
				return err
			}
			if p.Status.TypeChecking == nil {
				return errors.New("it is not checked")
			}
			return errors.Join(want("generation", p.Status.ObservedGeneration, p.Generation),
				want("warnings", len(p.Status.TypeChecking.ExpressionWarnings), 1))
		},
	})
}
