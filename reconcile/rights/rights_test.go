package rights_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/rights"
)

var user = reconciletest.ServiceAccount("default", "worker")

// serverWith returns a server in memory, and a link to it whose user has these rights and no others.
func serverWith(t *testing.T, granted rights.Needs) (*reconciletest.Server, *reconciletest.Link) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rbac.yaml")
	var manifest []byte
	for namespace, rules := range granted {
		kind := "Role"
		if namespace == "" {
			kind = "ClusterRole"
		}
		meta := metav1.ObjectMeta{Name: "worker", Namespace: namespace}
		subjects := []rbacv1.Subject{{Kind: "User", Name: user}}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: "worker"}
		for _, o := range []any{
			rbacv1.Role{TypeMeta: typed(kind), ObjectMeta: meta, Rules: rules},
			rbacv1.RoleBinding{TypeMeta: typed(kind + "Binding"), ObjectMeta: meta, Subjects: subjects, RoleRef: ref},
		} {
			text, err := yaml.Marshal(o)
			require.NoError(t, err)
			manifest = append(append(manifest, "---\n"...), text...)
		}
	}
	require.NoError(t, os.WriteFile(file, manifest, 0o600))
	server := reconciletest.NewServer(t, reconciletest.Options{Roles: []string{file}})
	return server, server.LinkAs(user)
}

func typed(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
}

func TestAllThatIsMissingIsNamedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := rbacv1.PolicyRule{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}
		needs := rights.Needs{
			"": {rights.Rule("", "nodes", "list"), path},
			"default": append(rights.Lease("own"), rights.Rule("", "pods", "list", "watch", "delete"),
				rights.Rule("apps", "replicasets/status", "update"),
				rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"replicasets", "deployments"},
					ResourceNames: []string{"a", "b"}, Verbs: []string{"get"}}),
		}
		_, link := serverWith(t, needs)
		require.NoError(t, rights.Check(t.Context(), link.Config(), needs))

		_, link = serverWith(t, rights.Needs{"default": {
			rights.Rule("", "pods", "watch"), rights.Lease("yours")[1],
			{APIGroups: []string{"apps"}, Resources: []string{"*"}, ResourceNames: []string{"a"},
				Verbs: []string{"*"}},
		}})
		delete(needs, "")
		needs[""] = []rbacv1.PolicyRule{rights.Rule("", "nodes", "list")}
		err := rights.Check(t.Context(), link.Config(), needs)
		require.EqualError(t, err, `the API server does not grant this user what the program needs
to be added to a ClusterRole, for all namespaces:
- {apiGroups: [""], resources: ["nodes"], verbs: ["list"]}
to be added to a Role in namespace default:
- {apiGroups: ["coordination.k8s.io"], resources: ["leases"], verbs: ["create"]}
- {apiGroups: ["coordination.k8s.io"], resources: ["leases"], resourceNames: ["own"], verbs: ["get", "update", "watch"]}
- {apiGroups: [""], resources: ["pods"], verbs: ["list", "delete"]}
- {apiGroups: ["apps"], resources: ["replicasets/status"], verbs: ["update"]}
- {apiGroups: ["apps"], resources: ["replicasets"], resourceNames: ["b"], verbs: ["get"]}
- {apiGroups: ["apps"], resources: ["deployments"], resourceNames: ["b"], verbs: ["get"]}`)

		// What the error says is enough, together with what there was.
		var missing *rights.MissingError
		require.ErrorAs(t, err, &missing)
		_, link = serverWith(t, missing.Missing)
		require.NoError(t, rights.Check(t.Context(), link.Config(), missing.Missing))
	})
}

func TestNeedsThatSayNothingAreRefused(t *testing.T) {
	err := rights.Check(t.Context(), &rest.Config{Host: "http://127.0.0.1:1"}, rights.Needs{
		"a": {rights.Rule("", "pods"), {Resources: []string{"pods"}, Verbs: []string{"get"}}},
		"b": {{APIGroups: []string{""}, Verbs: []string{"get"}},
			{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
	})
	for _, mistake := range []string{`needs["a"][0] has no verb`, `needs["a"][1] has no API group`,
		`needs["b"][0] has no resource`, `needs["b"][1] has a nonResourceURL, which is in no namespace`} {
		require.ErrorContains(t, err, mistake)
	}
	require.ErrorContains(t, rights.Check(t.Context(), &rest.Config{Host: "::"}, nil), "rights.Check: ")
}

// TestAServerThatIsNotReadyIsWaitedFor: a connection that is refused, and a server that says 503 and then with
// Retry-After, are tried again until ctx ends; a refusal to answer is not.
func TestAServerThatIsNotReadyIsWaitedFor(t *testing.T) {
	needs := rights.Needs{"default": {rights.Rule("", "pods", "list")}}
	for name, failure := range map[string]reconciletest.Fault{
		"503":        reconciletest.Refuse(apierrors.NewServiceUnavailable("starting")),
		"429":        reconciletest.Refuse(apierrors.NewTooManyRequests("slowly", 2)),
		"500":        reconciletest.Refuse(apierrors.NewInternalError(errors.New("etcd"))),
		"no network": reconciletest.Reset,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, link := serverWith(t, needs)
				began, down := time.Now(), 20*time.Second
				link.Inject(func(reconciletest.Request) reconciletest.Fault {
					if time.Since(began) < down {
						return failure
					}
					return nil
				})
				require.NoError(t, rights.Check(t.Context(), link.Config(), needs))
				require.Less(t, time.Since(began), 30*time.Second)

				began, down = time.Now(), time.Hour
				cause := errors.New("the startup timeout is over")
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, cause)
				defer cancel()
				err := rights.Check(ctx, link.Config(), needs)
				require.ErrorIs(t, err, cause)
				require.ErrorContains(t, err, fmt.Sprintf("cannot ask the API server at %s which rights",
					link.Config().Host))
				require.Equal(t, time.Minute, time.Since(began))
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		_, link := serverWith(t, needs)
		link.Inject(func(reconciletest.Request) reconciletest.Fault {
			return reconciletest.Refuse(apierrors.NewUnauthorized("token expired"))
		})
		err := rights.Check(t.Context(), link.Config(), needs)
		require.True(t, apierrors.IsUnauthorized(err), "%v", err)
	})
}

func TestRightsAreReadFromAManifest(t *testing.T) {
	const manifest = `
# A comment, and a document of another kind.
apiVersion: v1
kind: ServiceAccount
metadata: {name: worker, namespace: a}
---
kind: ClusterRole
metadata: {name: everywhere}
rules: [{apiGroups: [""], resources: [pods], verbs: [list]}]
---
kind: ClusterRoleBinding
metadata: {name: everywhere}
roleRef: {kind: ClusterRole, name: everywhere}
---
kind: ClusterRole
metadata: {name: unbound}
rules: [{nonResourceURLs: [/metrics], verbs: [get]}]
---
kind: ClusterRole
metadata: {name: in-two}
rules: [{apiGroups: [apps], resources: [deployments], resourceNames: [web], verbs: [get]}]
---
kind: RoleBinding
metadata: {name: in-a, namespace: a}
roleRef: {kind: ClusterRole, name: in-two}
---
kind: RoleBinding
metadata: {name: in-b, namespace: b}
roleRef: {kind: ClusterRole, name: in-two}
`
	const role = `{"kind": "Role", "metadata": {"name": "r", "namespace": "b"},
		"rules": [{"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}]}`
	needs, err := rights.Parse([]byte(manifest), []byte(role))
	require.NoError(t, err)
	web := rights.Rule("apps", "deployments", "get")
	web.ResourceNames = []string{"web"}
	require.ElementsMatch(t, []rbacv1.PolicyRule{rights.Rule("", "pods", "list"),
		{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}, needs[""])
	require.Equal(t, []rbacv1.PolicyRule{web}, needs["a"])
	require.ElementsMatch(t, []rbacv1.PolicyRule{web, rights.Rule("", "events", "create")}, needs["b"])
	require.Len(t, needs, 3)

	for text, want := range map[string]string{
		"kind: Role\nmetadata: {name: r}": "Role r has no namespace",
		"kind: [":                         "document 1",
		"kind: Pod":                       "no Role and no ClusterRole",
		"":                                "no Role and no ClusterRole",
	} {
		_, err := rights.Parse([]byte(text))
		require.ErrorContains(t, err, "rights.Parse: ")
		require.ErrorContains(t, err, want)
	}
}
