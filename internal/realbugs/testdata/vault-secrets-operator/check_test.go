package check

import (
	"errors"
	"fmt"
	"testing"

	"k8s.io/utils/ptr"

	secretsv1beta1 "github.com/hashicorp/vault-secrets-operator/api/v1beta1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// TestSecretTransformation: whether the templates of a transformation can be read is in its status. One is mended,
// another one goes, and a third one cannot be read.
func TestSecretTransformation(t *testing.T) {
	of := func(name, text string) string {
		return fmt.Sprintf(`
apiVersion: secrets.hashicorp.com/v1beta1
kind: SecretTransformation
metadata: {name: %s, namespace: team}
spec:
  templates: {url: {text: %q}}
  excludes: [".*"]
---
`, name, text)
	}
	const resource, good, bad = "secrettransformations", `{{ get .Secrets "url" }}`, `{{ get .Secrets "url" `
	check(t, transformations, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(of("first", bad)+of("old", good), of("first", good)),
			reconciletest.Delete(resource, team, "old"), reconciletest.ApplyYAML(of("second", bad))[0]),
		Settled: func(s *reconciletest.Server) error {
			errs := []error{gone[*secretsv1beta1.SecretTransformation](s, resource, team, "old")}
			for name, valid := range map[string]bool{"first": true, "second": false} {
				o, err := there[*secretsv1beta1.SecretTransformation](s, resource, team, name)
				if err != nil {
					return err
				}
				errs = append(errs, want(name+" says whether it is valid", o.Status.Valid != nil, true),
					want(name+" is valid", ptr.Deref(o.Status.Valid, false), valid),
					want(name+" has no error", o.Status.Error == "", valid))
			}
			return errors.Join(errs...)
		},
	}, resource)
}

// TestVaultAuth: an authentication is valid if its connection is there. One gets another role, another one goes, and a
// third one comes with its connection.
func TestVaultAuth(t *testing.T) {
	connection := func(name string) string {
		return fmt.Sprintf(`
apiVersion: secrets.hashicorp.com/v1beta1
kind: VaultConnection
metadata: {name: %[1]s, namespace: team}
spec: {address: "https://%[1]s.example.com:8200", skipTLSVerify: false}
---
`, name)
	}
	auth := func(name, at, role string) string {
		return fmt.Sprintf(`
apiVersion: secrets.hashicorp.com/v1beta1
kind: VaultAuth
metadata: {name: %s, namespace: team}
spec:
  vaultConnectionRef: %s
  method: kubernetes
  mount: kubernetes
  kubernetes: {role: %s, serviceAccount: default}
---
`, name, at, role)
	}
	const resource = "vaultauths"
	check(t, auths, reconciletest.Scenario{
		Steps: append(reconciletest.ApplyYAML(
			connection("vault")+auth("first", "vault", "web")+auth("old", "vault", "web"),
			auth("first", "vault", "shop")), reconciletest.Delete(resource, team, "old"),
			reconciletest.ApplyYAML(connection("other") + auth("second", "other", "web"))[0]),
		Settled: func(s *reconciletest.Server) error {
			errs := []error{gone[*secretsv1beta1.VaultAuth](s, resource, team, "old")}
			for _, name := range []string{"first", "second"} {
				o, err := there[*secretsv1beta1.VaultAuth](s, resource, team, name)
				if err != nil {
					return err
				}
				errs = append(errs, want(name+" is valid", ptr.Deref(o.Status.Valid, false), true),
					want("error of "+name, o.Status.Error, ""), want("finalizers of "+name, len(o.Finalizers), 1))
			}
			return errors.Join(errs...)
		},
	}, resource, "vaultconnections", "vaultauthglobals")
}
