package check

import (
	"errors"
	"fmt"
	"testing"
	"time"

	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

// TestExtensionConfig: extensions are discovered when there is a certificate by which they can be trusted. That of one
// is renewed, and it gets more handlers; another one goes. Nothing is switched off; no schedule begins after a minute.
func TestExtensionConfig(t *testing.T) {
	secret := func(name, ca string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata: {name: %s-ca, namespace: hooks}
stringData: {ca.crt: %q}
---
`, name, ca)
	}
	extension := func(name, settings string) string {
		return fmt.Sprintf(`
apiVersion: runtime.cluster.x-k8s.io/v1beta2
kind: ExtensionConfig
metadata: {name: %[1]s, annotations: {%[3]s: hooks/%[1]s-ca}}
spec: {clientConfig: {service: {namespace: hooks, name: %[1]s, port: 443}}%[2]s}
---
`, name, settings, runtimev1.InjectCAFromSecretAnnotation)
	}
	reconciletest.Check(t, reconciletest.Scenario{
		Run: run,
		Server: reconciletest.Options{CRDs: []string{"crd"}, Rules: cel.Rules{}, Kinds: builtin.Kinds(),
			Namespaces: []string{"default", "hooks"}},
		Limit: time.Minute,
		Steps: append(reconciletest.ApplyYAML(secret("audit", "first")+secret("old", "other")+extension("audit", "")+
			extension("old", ""), secret("audit", "second"), extension("audit", ", settings: {deletes: please}")),
			reconciletest.Delete("extensionconfigs", "", "old")),
		Settled: func(s *reconciletest.Server) error {
			e, err := there[*runtimev1.ExtensionConfig](s, "extensionconfigs", "", "audit")
			if err != nil {
				return err
			}
			return errors.Join(gone[*runtimev1.ExtensionConfig](s, "extensionconfigs", "", "old"),
				want("certificate", string(e.Spec.ClientConfig.CABundle), "second"),
				want("discovered", conditions.IsTrue(e, runtimev1.ExtensionConfigDiscoveredCondition), true),
				want("handlers", len(e.Status.Handlers), 2))
		},
	})
}
