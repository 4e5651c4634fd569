package reconciletest

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// rolesOf is a manifest with roles in a namespace, for the service account worker there.
func rolesOf(namespace string) []byte {
	return []byte(strings.ReplaceAll(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: worker, namespace: NS}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: worker, namespace: NS}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get, list, watch, patch]}
- {apiGroups: [""], resources: [configmaps], resourceNames: [mine], verbs: [update, delete, create]}
- {apiGroups: [corpus.example.com], resources: [gadgets], verbs: [patch]}
- {apiGroups: [apps], resources: [replicasets/status], verbs: ["*"]}
- {apiGroups: [apps], resources: [replicasets], verbs: [create, get]}
- {apiGroups: [""], resources: [secrets], resourceNames: [known], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: worker, namespace: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: worker}
subjects: [{kind: ServiceAccount, name: worker, namespace: NS}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NS-nodes}
rules:
- {apiGroups: [""], resources: [nodes], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NS-nodes}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NS-nodes}
subjects: [{kind: Group, name: "system:serviceaccounts:NS", apiGroup: rbac.authorization.k8s.io}]
`, "NS", namespace))
}

// manifestOf writes a manifest to a file.
func manifestOf(t *testing.T, documents []byte) string {
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	require.NoError(t, os.WriteFile(file, documents, 0o600))
	return file
}

// accessCorpus are the requests of that service account.
var accessCorpus = []step{
	get("cm/a"), post("cm", "a", ``), merge("cm/a", `{"data":{"x":"1"}}`), put("cm/a", ``), put("cm/mine", ``),
	del("cm/a", ``), del("cm/mine", ``), del("cm", ``), get("cm?labelSelector=none%3Dsuch"),
	apply("cm/new?fieldManager=me", `"data":{"x":"1"}`), apply("cm/mine?fieldManager=me", `"data":{"x":"1"}`),
	apply("cm/new?fieldManager=me&dryRun=All", `"data":{"x":"1"}`),
	apply("cm/new?fieldManager=me", `"data":{"x y":"1"}`),
	apply("gadgets/new?fieldManager=me", `"spec":{"x":1}`), apply("rs/new?fieldManager=me", workload(0)),
	raw("GET", "cm?watch=true&timeoutSeconds=1", "", "application/json", ""),
	post("rs", "a", workload(0)), get("rs/a"), get("rs"), merge("rs/a", `{"spec":{"replicas":1}}`),
	merge("rs/a/status", `{"status":{"replicas":0}}`), get("rs/a/scale"),
	get("secrets/known"), get("secrets/other"), get("secrets"), get("secrets?fieldSelector=metadata.name%3Dknown"),
	get("secrets?fieldSelector=metadata.name%3Dother"),
	raw("GET", "nodes", "", "application/json", ""), get("nodes/x"), get("pods"), get("api/v1/configmaps"),
}

// compareAccess sends the same requests of the same service account, under the same roles, to both servers.
func compareAccess(t *testing.T, cluster *testcluster.Cluster) {
	namespace := cluster.Namespace(t)
	objects, err := testcluster.Decode(rolesOf(namespace))
	require.NoError(t, err)
	require.NoError(t, cluster.Apply(t.Context(), objects...))
	config := cluster.Config()
	config.Impersonate.UserName = ServiceAccount(namespace, "worker")
	want := play(t, config, namespace, player{}, accessCorpus)

	memory := NewServer(t, Options{Resources: customResources(), Namespaces: []string{"default", "in-memory"},
		Roles: []string{manifestOf(t, rolesOf("in-memory"))}})
	link := memory.LinkAs(ServiceAccount("in-memory", "worker"))
	got := play(t, link.Config(), "in-memory", player{}, accessCorpus)
	require.Equal(t, want, got, "expected is what the real server does, actual what the server in memory does")
	require.Contains(t, link.Used()["in-memory"],
		rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"replicasets"},
			Verbs: []string{"create", "get"}})
	require.Equal(t, []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"},
		Verbs: []string{"list"}}}, link.Used()[""])
}

func TestAccessThatIsReviewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(t, Options{Roles: []string{manifestOf(t, rolesOf("default"))}})
		clients, err := kubernetes.NewForConfig(s.LinkAs(ServiceAccount("default", "worker")).Config())
		require.NoError(t, err)
		for _, one := range []struct {
			attributes authorizationv1.ResourceAttributes
			allowed    bool
		}{
			{authorizationv1.ResourceAttributes{Verb: "get", Resource: "configmaps", Namespace: "default"}, true},
			{authorizationv1.ResourceAttributes{Verb: "create", Resource: "configmaps", Namespace: "default"}, false},
			{authorizationv1.ResourceAttributes{Verb: "get", Resource: "configmaps", Namespace: "elsewhere"}, false},
			{authorizationv1.ResourceAttributes{Verb: "get", Resource: "configmaps"}, false},
			{authorizationv1.ResourceAttributes{Verb: "update", Resource: "configmaps", Namespace: "default",
				Name: "mine"}, true},
			{authorizationv1.ResourceAttributes{Verb: "create", Resource: "configmaps", Namespace: "default",
				Name: "mine"}, true},
			{authorizationv1.ResourceAttributes{Verb: "update", Resource: "configmaps", Namespace: "default"}, false},
			{authorizationv1.ResourceAttributes{Verb: "patch", Group: "apps", Resource: "replicasets",
				Subresource: "status", Namespace: "default"}, true},
			{authorizationv1.ResourceAttributes{Verb: "list", Resource: "nodes"}, true},
		} {
			review := &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &one.attributes}}
			answer, err := clients.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), review,
				metav1.CreateOptions{})
			require.NoError(t, err)
			require.Equal(t, one.allowed, answer.Status.Allowed, "%+v", one.attributes)
			others := kubernetes.NewForConfigOrDie(s.Config()).AuthorizationV1().SubjectAccessReviews()
			asked := authorizationv1.SubjectAccessReviewSpec{User: ServiceAccount("default", "worker"),
				Groups: []string{"system:serviceaccounts:default"}, ResourceAttributes: &one.attributes}
			of, err := others.Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: asked},
				metav1.CreateOptions{})
			require.NoError(t, err)
			require.Equal(t, one.allowed, of.Status.Allowed, "%+v", one.attributes)
			asked.Groups = nil // who asks about another has to name his groups
			of, err = others.Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: asked},
				metav1.CreateOptions{})
			require.NoError(t, err)
			require.Equal(t, one.allowed && one.attributes.Resource != "nodes", of.Status.Allowed)
		}
		path := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/metrics"}}}
		answer, err := clients.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), path,
			metav1.CreateOptions{})
		require.NoError(t, err)
		require.False(t, answer.Status.Allowed)
		_, err = clients.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		require.True(t, apierrors.IsForbidden(err))
		require.ErrorContains(t, err, `User "system:serviceaccount:default:worker" cannot list resource "pods" in `+
			`API group "" in the namespace "default"`)
	})
}

func TestAccessThatIsReviewedWrongly(t *testing.T) {
	s := NewServer(t, Options{})
	client, err := rest.HTTPClientFor(s.Config())
	require.NoError(t, err)
	resp, err := client.Post(s.Config().Host+"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
		"application/json", strings.NewReader(
			`{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":"x"}`))
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusBadRequest, resp.StatusCode, "%s", body)
	require.Contains(t, string(body),
		`SelfSubjectAccessReview in version \"v1\" cannot be handled as a SelfSubjectAccessReview: json: `)
}

// An apply creates what does not exist, which takes the right to create as well, in a dry run, too.
func TestAnApplyThatCreatesNeedsTheRightToCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(t, Options{Roles: []string{manifestOf(t, rolesOf("default"))}})
		link := s.LinkAs(ServiceAccount("default", "worker"))
		clients, err := kubernetes.NewForConfig(link.Config())
		require.NoError(t, err)
		send := func(name string, dryRun ...string) error {
			_, err := clients.CoreV1().ConfigMaps("default").Apply(t.Context(),
				corev1ac.ConfigMap(name, "default").WithData(map[string]string{"a": "b"}),
				metav1.ApplyOptions{FieldManager: "me", DryRun: dryRun})
			return err
		}
		for _, err := range []error{send("a"), send("a", metav1.DryRunAll)} {
			require.True(t, apierrors.IsForbidden(err))
			require.ErrorContains(t, err, `configmaps "a" is forbidden: User "system:serviceaccount:default:worker" `+
				`cannot create resource "configmaps" in API group "" in the namespace "default"`)
		}
		require.Equal(t, []string{"patch"}, link.Used()["default"][0].Verbs)
		require.NoError(t, send("mine"))
		require.Equal(t, []string{"create", "patch"}, link.Used()["default"][0].Verbs)
	})
}

func TestManifestsThatCannotBeJudgedAreRefused(t *testing.T) {
	for name, manifest := range map[string]string{
		"aggregated": "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}, " +
			"aggregationRule: {clusterRoleSelectors: []}}",
		"no role": "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a}, roleRef: " +
			"{kind: Role, name: b}, subjects: [{kind: User, name: c}]}",
		"no subject": "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a}, roleRef: " +
			"{kind: Role, name: b}, subjects: [{kind: Robot, name: c}]}",
		"no YAML": "{",
	} {
		t.Run(name, func(t *testing.T) {
			file := manifestOf(t, []byte(manifest))
			require.Contains(t, refusal(t, Options{Roles: []string{file}}), "reconciletest.NewServer: roles: ")
		})
	}
}
