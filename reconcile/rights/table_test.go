package rights_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile/events"
	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/reconcile/rights"
	"github.com/thermostat-go/thermostat/reconcile/sharding"
)

// helpers are rows of the table in the package's doc: what they need, and a use of all of it in the namespace default,
// where there are the ReplicaSet owner and the ConfigMap orphan. admin may do everything.
var helpers = map[string]struct {
	needs []rbacv1.PolicyRule
	use   func(t *testing.T, cfg *rest.Config, mine, admin *kubernetes.Clientset)
}{
	"informer.New": {[]rbacv1.PolicyRule{rights.Rule("", "configmaps", "list", "watch")},
		func(t *testing.T, _ *rest.Config, mine, _ *kubernetes.Clientset) {
			inf, err := informer.New[*corev1.ConfigMap](mine.CoreV1().ConfigMaps("default"),
				informer.Options[*corev1.ConfigMap]{DisableWatchList: true})
			require.NoError(t, err)
			runFor(t, inf.Run)
			require.Equal(t, 1, inf.Len())
		}},
	"with a selector for one name": {[]rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"},
		Verbs: []string{"list", "watch"}, ResourceNames: []string{"orphan"}}},
		func(t *testing.T, _ *rest.Config, mine, _ *kubernetes.Clientset) {
			inf, err := informer.New[*corev1.ConfigMap](mine.CoreV1().ConfigMaps("default"),
				informer.Options[*corev1.ConfigMap]{DisableWatchList: true,
					FieldSelector: fields.OneTermEqualSelector("metadata.name", "orphan")})
			require.NoError(t, err)
			runFor(t, inf.Run)
			require.Equal(t, 1, inf.Len())
		}},
	"objects.CreateOwned": {[]rbacv1.PolicyRule{rights.Rule("", "configmaps", "create", "get")},
		func(t *testing.T, _ *rest.Config, mine, admin *kubernetes.Clientset) {
			for range 2 {
				_, err := objects.CreateOwned(t.Context(), ownerOf(t, mine, admin), mine.CoreV1().ConfigMaps("default"),
					&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "child"}})
				require.NoError(t, err)
			}
		}},
	"objects.Claim": {[]rbacv1.PolicyRule{rights.Rule("", "configmaps", "patch"),
		rights.Rule("apps", "replicasets", "get")},
		func(t *testing.T, _ *rest.Config, mine, admin *kubernetes.Clientset) {
			all, err := objects.Claim(t.Context(), ownerOf(t, mine, admin), mine.CoreV1().ConfigMaps("default"),
				slices.Values([]*corev1.ConfigMap{orphan(t, admin)}), func(*corev1.ConfigMap) bool { return true })
			require.NoError(t, err)
			require.Len(t, all, 1)
		}},
	"objects.Finalize": {[]rbacv1.PolicyRule{rights.Rule("", "configmaps", "patch")},
		func(t *testing.T, _ *rest.Config, mine, admin *kubernetes.Clientset) {
			_, alive, err := objects.Finalize(t.Context(), mine.CoreV1().ConfigMaps("default"), orphan(t, admin),
				"example.com/f", func(context.Context) (bool, error) { return true, nil })
			require.NoError(t, err)
			require.True(t, alive)
		}},
	"objects.Apply": {[]rbacv1.PolicyRule{rights.Rule("", "configmaps", "create", "patch")},
		func(t *testing.T, _ *rest.Config, mine, _ *kubernetes.Clientset) {
			for _, name := range []string{"orphan", "new"} {
				_, err := objects.Apply(t.Context(), mine.CoreV1().ConfigMaps("default").Apply, data(name), asMe)
				require.NoError(t, err)
			}
		}},
	"objects.ApplyOwned": {[]rbacv1.PolicyRule{rights.Rule("", "configmaps", "create", "get", "patch"),
		rights.Rule("apps", "replicasets", "get")},
		func(t *testing.T, _ *rest.Config, mine, admin *kubernetes.Clientset) {
			maps, owner := mine.CoreV1().ConfigMaps("default"), ownerOf(t, mine, admin)
			for range 2 { // the second time it exists already, and no cache shows it
				_, err := objects.ApplyOwned(t.Context(), owner, maps, nil, data("child"), asMe, nil)
				require.NoError(t, err)
			}
			_, err := objects.ApplyOwned(t.Context(), owner, maps, orphan(t, admin), data("orphan"), asMe,
				func(*corev1.ConfigMap) bool { return true })
			require.NoError(t, err)
		}},
	"objects.Drift": {[]rbacv1.PolicyRule{rights.Rule("", "configmaps", "create", "get", "patch")},
		func(t *testing.T, _ *rest.Config, mine, _ *kubernetes.Clientset) {
			maps := mine.CoreV1().ConfigMaps("default")
			for _, name := range []string{"orphan", "new"} {
				found, err := objects.Drift(t.Context(), maps, maps.Apply, data(name), asMe)
				require.NoError(t, err)
				require.NotEmpty(t, found)
			}
		}},
	"objects.DeleteOwned": {[]rbacv1.PolicyRule{rights.Rule("", "configmaps", "delete")},
		func(t *testing.T, _ *rest.Config, mine, admin *kubernetes.Clientset) {
			child, err := objects.CreateOwned(t.Context(), ownerOf(t, admin, admin),
				admin.CoreV1().ConfigMaps("default"), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "child"}})
			require.NoError(t, err)
			_, err = objects.DeleteOwned(t.Context(), ownerOf(t, mine, admin), mine.CoreV1().ConfigMaps("default"),
				child, metav1.DeletePropagationBackground)
			require.NoError(t, err)
		}},
	"events.NewRecorder": {[]rbacv1.PolicyRule{rights.Rule("", "events", "create", "patch")},
		func(t *testing.T, cfg *rest.Config, _, admin *kubernetes.Clientset) {
			recorder, err := events.NewRecorder(cfg, "me")
			require.NoError(t, err)
			about := events.As(orphan(t, admin), corev1.SchemeGroupVersion.WithKind("ConfigMap"))
			record := func() { recorder.Event(about, corev1.EventTypeNormal, "Seen", "") }
			record()
			time.AfterFunc(time.Second, record) // raises the count of the first one
			runFor(t, recorder.Run)
		}},
	"objects.UpdateStatus": {[]rbacv1.PolicyRule{rights.Rule("apps", "replicasets/status", "update"),
		rights.Rule("apps", "replicasets", "get")},
		func(t *testing.T, _ *rest.Config, mine, admin *kubernetes.Clientset) {
			seen := owner(t, admin)
			newer := seen.DeepCopy()
			newer.Labels = map[string]string{"newer": "yes"}
			_, err := admin.AppsV1().ReplicaSets("default").Update(t.Context(), newer, metav1.UpdateOptions{})
			require.NoError(t, err)
			_, err = objects.UpdateStatus(t.Context(), mine.AppsV1().ReplicaSets("default"), seen,
				func(rs *appsv1.ReplicaSet) error { rs.Status.ObservedGeneration = 1; return nil })
			require.NoError(t, err)
		}},
	"leaderelection.New": {rights.Lease("mine"),
		func(t *testing.T, cfg *rest.Config, _, _ *kubernetes.Clientset) {
			elector, err := leaderelection.New(leaderelection.Config{REST: cfg, Namespace: "default", Name: "mine"})
			require.NoError(t, err)
			led := false
			runFor(t, func(ctx context.Context) error {
				return elector.Run(ctx, func(ctx context.Context) error { led = true; <-ctx.Done(); return nil })
			})
			require.True(t, led)
		}},
	"sharding.New": {rights.Shards(),
		func(t *testing.T, cfg *rest.Config, _, admin *kubernetes.Clientset) {
			shards, err := sharding.New(sharding.Options{REST: cfg, Namespace: "default", Name: "mine"})
			require.NoError(t, err)
			leases := admin.CoordinationV1().Leases("default")
			err = shards.Run(t.Context(), func(ctx context.Context) error {
				all, err := leases.List(ctx, metav1.ListOptions{})
				if err != nil {
					return err
				}
				for _, lease := range all.Items { // a replica reads its Lease when it cannot renew it
					err = errors.Join(err, leases.Delete(ctx, lease.Name, metav1.DeleteOptions{}))
				}
				<-ctx.Done()
				return err
			})
			require.ErrorIs(t, err, sharding.ErrLost)
		}},
	"rights.Check": {nil, func(t *testing.T, cfg *rest.Config, _, _ *kubernetes.Clientset) {
		var missing *rights.MissingError
		require.ErrorAs(t, rights.Check(t.Context(), cfg, rights.Needs{"default": rights.Lease("mine")}), &missing)
	}},
}

var asMe = metav1.ApplyOptions{FieldManager: "me"}

// data is a ConfigMap to apply.
func data(name string) *corev1ac.ConfigMapApplyConfiguration {
	return corev1ac.ConfigMap(name, "default").WithData(map[string]string{"a": "b"})
}

// runFor runs something for a minute.
func runFor(t *testing.T, run func(context.Context) error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, run(ctx))
}

func owner(t *testing.T, admin *kubernetes.Clientset) *appsv1.ReplicaSet {
	rs, err := admin.AppsV1().ReplicaSets("default").Get(t.Context(), "owner", metav1.GetOptions{})
	require.NoError(t, err)
	return rs
}

func orphan(t *testing.T, admin *kubernetes.Clientset) *corev1.ConfigMap {
	o, err := admin.CoreV1().ConfigMaps("default").Get(t.Context(), "orphan", metav1.GetOptions{})
	require.NoError(t, err)
	return o
}

func ownerOf(t *testing.T, mine, admin *kubernetes.Clientset) *objects.Owner {
	return objects.NewOwner(mine.AppsV1().ReplicaSets("default"), owner(t, admin),
		appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
}

// TestEachHelperNeedsWhatTheTableSays uses each helper with exactly the rights of its row, and each right is used.
func TestEachHelperNeedsWhatTheTableSays(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	for name, helper := range helpers {
		t.Run(name, func(t *testing.T) {
			rows := regexp.MustCompile(`(?m)^//\t` + regexp.QuoteMeta(name) + `\b.*\n(//\t .*\n)*`)
			row := rows.FindString(string(doc))
			require.NotEmpty(t, row)
			for _, rule := range helper.needs {
				for _, verb := range rule.Verbs {
					require.Contains(t, row, verb)
				}
			}
			synctest.Test(t, func(t *testing.T) {
				server, link := serverWith(t, rights.Needs{"default": helper.needs})
				admin := kubernetes.NewForConfigOrDie(server.Config())
				labels := map[string]string{"app": "web"}
				_, err := admin.AppsV1().ReplicaSets("default").Create(t.Context(), &appsv1.ReplicaSet{
					ObjectMeta: metav1.ObjectMeta{Name: "owner"},
					Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
						Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
							Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}},
				}, metav1.CreateOptions{})
				require.NoError(t, err)
				_, err = admin.CoreV1().ConfigMaps("default").Create(t.Context(),
					&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "orphan"}}, metav1.CreateOptions{})
				require.NoError(t, err)
				cfg := link.Config()
				helper.use(t, cfg, kubernetes.NewForConfigOrDie(cfg), admin)
				require.Equal(t, flat(helper.needs), flat(link.Used()["default"]))
				require.Empty(t, link.Used()[""])
			})
		})
	}
}

// flat returns what rules grant, without names of objects.
func flat(rules []rbacv1.PolicyRule) (all []string) {
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			all = append(all, strings.Join([]string{verb, rule.APIGroups[0], rule.Resources[0]}, " "))
		}
	}
	slices.Sort(all)
	return all
}
