package rights

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// document is what Parse reads of each document of a manifest.
type document struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Rules             []rbacv1.PolicyRule `json:"rules"`
	RoleRef           rbacv1.RoleRef      `json:"roleRef"`
}

// Parse returns the rules that manifests grant, so that a program can check the Roles that it is installed with:
//
//	//go:embed deploy/rbac.yaml
//	var role []byte
//
//	needs, err := rights.Parse(role)
//	if err == nil {
//		err = rights.Check(ctx, cfg, needs)
//	}
//
// A manifest is YAML of one or more documents, or JSON. The rules of a Role are for its namespace. Those of a
// ClusterRole are for all namespaces, or for the namespace of each RoleBinding that names it if no ClusterRoleBinding
// does. Documents of other kinds are passed over, and so are the subjects of bindings: the manifests of a program with
// several service accounts are parsed one by one. An error says which document cannot be read, that a Role has no
// namespace, or that there is no rule at all.
func Parse(manifests ...[]byte) (Needs, error) {
	needs, byName, bound := Needs{}, map[string][]rbacv1.PolicyRule{}, map[string]map[string]bool{}
	for _, manifest := range manifests {
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
		for i := 1; ; i++ {
			var d document
			err := decoder.Decode(&d)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("rights.Parse: document %d: %w", i, err)
			}
			switch {
			case d.Kind == "Role" && d.Namespace == "":
				return nil, fmt.Errorf("rights.Parse: Role %s has no namespace", d.Name)
			case d.Kind == "Role":
				needs[d.Namespace] = append(needs[d.Namespace], d.Rules...)
			case d.Kind == "ClusterRole":
				byName[d.Name] = d.Rules
			case d.RoleRef.Kind == "ClusterRole":
				if bound[d.RoleRef.Name] == nil {
					bound[d.RoleRef.Name] = map[string]bool{}
				}
				bound[d.RoleRef.Name][d.Namespace] = true // a ClusterRoleBinding has none
			}
		}
	}
	for name, rules := range byName {
		namespaces := bound[name]
		if len(namespaces) == 0 || namespaces[""] {
			namespaces = map[string]bool{"": true}
		}
		for namespace := range namespaces {
			needs[namespace] = append(needs[namespace], rules...)
		}
	}
	if len(needs) == 0 {
		return nil, errors.New("rights.Parse: the manifests have no Role and no ClusterRole")
	}
	return needs, nil
}
