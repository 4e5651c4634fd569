package check

import (
	"errors"
	"fmt"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	apiv1 "github.com/fluxcd/notification-controller/api/v1"
	"github.com/fluxcd/pkg/apis/meta"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

// receiver is one of webhooks, with a filter of what it is about.
func receiver(name, token, filter string) string {
	return fmt.Sprintf(`
apiVersion: notification.toolkit.fluxcd.io/v1
kind: Receiver
metadata: {name: %s, namespace: default}
spec:
  type: github
  interval: 1m
  events: [ping, push]
  secretRef: {name: %s}
  resourceFilter: %q
  resources: [{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, name: "*", matchLabels: {of: %[1]s}}]
---
`, name, token, filter)
}

// token is that of the sender of webhooks.
func token(name, is string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata: {name: %s, namespace: default}
stringData: {token: %s}
---
`, name, is)
}

const (
	invalid = "res.metadata.name.startsWith('web'" // a bracket is missing
	valid   = "res.metadata.name.startsWith('web')"
)

// TestReceiver: each receiver has a path that depends on its token, which is read each minute. One token changes, an
// invalid filter is mended, and one receiver goes.
func TestReceiver(t *testing.T) {
	reconciletest.Check(t, reconciletest.Scenario{
		Run: run,
		Server: reconciletest.Options{CRDs: []string{"crd"}, Rules: cel.Rules{}, Kinds: builtin.Kinds(),
			Namespaces: []string{"default"}},
		Limit: time.Minute,
		Steps: append(reconciletest.ApplyYAML(token("first", "one")+token("second", "two")+
			receiver("web", "first", valid)+receiver("bad", "second", invalid)+receiver("old", "second", ""),
			token("first", "three")), reconciletest.Wait(3*time.Minute),
			reconciletest.ApplyYAML(receiver("bad", "second", valid))[0],
			reconciletest.Delete("receivers", "default", "old")),
		Settled: func(s *reconciletest.Server) error {
			errs := []error{gone[*apiv1.Receiver](s, "receivers", "default", "old")}
			for name, token := range map[string]string{"web": "three", "bad": "two"} {
				r, err := there[*apiv1.Receiver](s, "receivers", "default", name)
				if err != nil {
					return err
				}
				conditions := r.Status.Conditions
				errs = append(errs, want("path of "+name, r.Status.WebhookPath, r.GetWebhookPath(token)),
					want(name+" is ready", apimeta.IsStatusConditionTrue(conditions, meta.ReadyCondition), true),
					want("conditions of "+name, len(conditions), 1),
					want("generation of "+name, r.Status.ObservedGeneration, r.Generation))
			}
			return errors.Join(errs...)
		},
	})
}
