package plan

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// userOf returns the user name of the account of [Options].
func userOf(account string) (string, error) {
	namespace, name, ok := strings.Cut(account, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", fmt.Errorf("the account %q is to be NAMESPACE/NAME", account)
	}
	return reconciletest.ServiceAccount(namespace, name), nil
}

// writeRoles writes the roles and bindings of the cluster into a file, as reconciletest.Options.Roles takes them.
func (b *base) writeRoles(ctx context.Context, file string) error {
	var documents bytes.Buffer
	roles := map[[2]string]bool{} // by namespace and name
	for _, kind := range []string{"ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding"} {
		r := rbacv1.SchemeGroupVersion.WithResource(strings.ToLower(kind) + "s")
		_, err := b.Objects(ctx, r, "", func(item []byte) error {
			var is struct {
				Metadata struct{ Namespace, Name string }
				RoleRef  rbacv1.RoleRef
			}
			tree := map[string]any{}
			if err := json.Unmarshal(item, &is); err != nil {
				return err
			}
			if err := json.Unmarshal(item, &tree); err != nil {
				return err
			}
			in := is.Metadata.Namespace
			switch is.RoleRef.Kind {
			case "": // it is a role
				roles[[2]string{in, is.Metadata.Name}] = true
			case "ClusterRole":
				in = ""
				fallthrough
			default:
				if !roles[[2]string{in, is.RoleRef.Name}] {
					return nil // which grants nothing
				}
			}
			tree["apiVersion"], tree["kind"] = r.GroupVersion().String(), kind
			delete(tree, "aggregationRule") // its rules are there
			data, err := json.Marshal(tree)
			fmt.Fprintf(&documents, "---\n%s\n", data)
			return err
		})
		if err != nil {
			return fmt.Errorf("the rights of the account need the %s of the cluster: %w", r.Resource, err)
		}
	}
	return os.WriteFile(file, documents.Bytes(), 0o600)
}
