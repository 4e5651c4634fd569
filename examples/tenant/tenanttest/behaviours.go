package tenanttest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/thermostat-go/thermostat/examples/tenant/api/v1"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// behaviours are what an operator has to do. Each begins without a Tenant.
func behaviours() map[string]func(*world) {
	return map[string]func(*world){
		"each project has a namespace with all that belongs to it": checkProvision,
		"projects come and go":                                 checkProjects,
		"a quota is exactly what is wanted":                    checkQuota,
		"what is deleted is made again":                        checkDeleted,
		"another role replaces the bindings":                   checkRole,
		"the platform's Secret is copied, and withdrawn":       checkSecret,
		"a Secret that the platform does not have":             checkSecretMissing,
		"a namespace of somebody else is left alone":           checkTaken,
		"two Tenants that want one namespace":                  checkTwoTenants,
		"a quota that the server refuses":                      checkRefused,
		"nothing is written when nothing is new":               checkCalm,
		"members lose their rights before their namespaces go": checkDeletion,
	}
}

// behavioursInMemory are those that need faults, hours, or a look at the operator's requests.
func behavioursInMemory() map[string]func(*world) {
	return map[string]func(*world){
		"a namespace that becomes free is taken at once": checkFreed,
		"what the server refuses is not sent again":      checkRefusedOnce,
		"a namespace that is refused holds back nobody else": func(w *world) {
			checkAlone(w, reconciletest.Refuse(apierrors.NewForbidden(corev1.Resource("resourcequotas"), v1.QuotaName,
				errors.New("for half an hour"))))
		},
		"a namespace that is slow holds back nobody else": func(w *world) {
			checkAlone(w, reconciletest.Delay(10*time.Minute, 0))
		},
	}
}

// quantities are those of a list of names and values.
func quantities(namesAndValues ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for pair := range slices.Chunk(namesAndValues, 2) {
		list[corev1.ResourceName(pair[0])] = resource.MustParse(pair[1])
	}
	return list
}

// provisioned makes a Tenant, and waits until everything is there.
func (w *world) provisioned(change ...func(*v1.TenantSpec)) *v1.Tenant {
	w.Helper()
	w.create(w.name, change...)
	w.Eventually(w.is(w.name, v1.ReasonProvisioned))
	t, err := w.get(w.name)
	require.NoError(w, err)
	return t
}

func checkProvision(w *world) {
	t := w.provisioned()
	require.Contains(w, t.Finalizers, v1.Finalizer)
	require.Equal(w, []string{w.home("data"), w.home("web")}, t.Status.Namespaces)
	for _, project := range t.Spec.Projects {
		home, err := w.namespace(project)
		require.NoError(w, err)
		require.Equal(w, string(t.UID), home.Labels[v1.OwnerLabel])
		require.Empty(w, home.OwnerReferences)
		quota, err := w.quota(project)
		require.NoError(w, err)
		require.True(w, apiequality.Semantic.DeepEqual(t.Spec.Quota, quota.Spec.Hard), quota.Spec)
		binding, err := w.binding(project)
		require.NoError(w, err)
		require.Equal(w, "ClusterRole edit", binding.RoleRef.Kind+" "+binding.RoleRef.Name)
		var who []string
		for _, s := range binding.Subjects {
			who = append(who, s.Kind+" "+s.Name)
		}
		require.ElementsMatch(w, []string{"ServiceAccount deployer", "User ada"}, who)
		policy, err := w.client.NetworkingV1().NetworkPolicies(home.Name).Get(w.Context(), v1.QuotaName,
			metav1.GetOptions{})
		require.NoError(w, err)
		require.Equal(w, map[string]string{v1.OwnerLabel: string(t.UID)},
			policy.Spec.Ingress[0].From[0].NamespaceSelector.MatchLabels)
		limits, err := w.client.CoreV1().LimitRanges(home.Name).Get(w.Context(), v1.QuotaName, metav1.GetOptions{})
		require.NoError(w, err)
		require.Equal(w, "100m", limits.Spec.Limits[0].DefaultRequest.Cpu().String())
		_, err = w.client.CoreV1().ServiceAccounts(home.Name).Get(w.Context(), v1.DeployerName, metav1.GetOptions{})
		require.NoError(w, err)
	}
}

func checkProjects(w *world) {
	w.provisioned()
	web, err := w.namespace("web")
	require.NoError(w, err)
	w.patch(w.name, `{"spec":{"projects":["web","shop"]}}`)
	w.Eventually(w.noNamespace("data"))
	w.Eventually(w.is(w.name, v1.ReasonProvisioned))
	for _, project := range []string{"web", "shop"} {
		_, err = w.binding(project)
		require.NoError(w, err)
	}
	is, err := w.namespace("web")
	require.NoError(w, err)
	require.Equal(w, web.UID, is.UID)
	w.patch(w.name, `{"spec":{"projects":[]}}`)
	w.Eventually(w.noNamespace("web"))
	w.Eventually(w.noNamespace("shop"))
	w.Eventually(w.is(w.name, v1.ReasonProvisioned))
}

func checkQuota(w *world) {
	t := w.provisioned()
	exact := func() error {
		quota, err := w.quota("web")
		if err == nil && !apiequality.Semantic.DeepEqual(t.Spec.Quota, quota.Spec.Hard) {
			err = fmt.Errorf("the quota is %v", quota.Spec.Hard)
		}
		return err
	}
	for _, drift := range []string{`{"spec":{"hard":{"pods":"9"}}}`, `{"spec":{"hard":{"memory":"1Gi"}}}`,
		`{"spec":{"hard":{"pods":null,"limits.cpu":"9"}}}`} {
		_, err := w.client.CoreV1().ResourceQuotas(w.home("web")).Patch(w.Context(), v1.QuotaName,
			types.MergePatchType, []byte(drift), metav1.PatchOptions{})
		require.NoError(w, err)
		w.Soon(exact)
	}
	w.patch(w.name, `{"spec":{"quota":{"pods":"30","requests.cpu":null}}}`)
	t.Spec.Quota = quantities("pods", "30")
	w.Soon(exact)
}

func checkDeleted(w *world) {
	w.provisioned()
	require.NoError(w, w.client.NetworkingV1().NetworkPolicies(w.home("web")).Delete(w.Context(), v1.QuotaName,
		metav1.DeleteOptions{}))
	w.Soon(func() error {
		_, err := w.client.NetworkingV1().NetworkPolicies(w.home("web")).Get(w.Context(), v1.QuotaName,
			metav1.GetOptions{})
		return err
	})
	before, err := w.namespace("data")
	require.NoError(w, err)
	require.NoError(w, w.client.CoreV1().Namespaces().Delete(w.Context(), before.Name, metav1.DeleteOptions{}))
	w.Eventually(func() error {
		is, err := w.namespace("data")
		if err == nil && is.UID == before.UID {
			err = errors.New("it is the old namespace")
		}
		return err
	})
	w.Eventually(w.is(w.name, v1.ReasonProvisioned))
	_, err = w.binding("data")
	require.NoError(w, err)
}

func checkRole(w *world) {
	w.provisioned()
	before, err := w.binding("web")
	require.NoError(w, err)
	w.patch(w.name, `{"spec":{"members":["ada","grace"]}}`)
	w.Eventually(w.is(w.name, v1.ReasonProvisioned))
	is, err := w.binding("web")
	require.NoError(w, err)
	require.Len(w, is.Subjects, 3)
	require.Equal(w, before.UID, is.UID)
	w.patch(w.name, `{"spec":{"role":"view"}}`)
	w.Eventually(w.is(w.name, v1.ReasonProvisioned))
	for _, project := range []string{"web", "data"} {
		is, err = w.binding(project)
		require.NoError(w, err)
		require.Equal(w, "view", is.RoleRef.Name)
		require.Len(w, is.Subjects, 3)
	}
}

// secret makes a Secret of the platform, which is deleted with the test.
func (w *world) secret(kind corev1.SecretType, value string) *corev1.Secret {
	w.Helper()
	s, err := w.client.CoreV1().Secrets(Platform).Create(w.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "registry-" + w.name}, Type: kind,
		Data: map[string][]byte{"token": []byte(value)}}, metav1.CreateOptions{})
	require.NoError(w, err)
	return s
}

// copied says that each project has a copy of a Secret of that type and value, and nothing else in it.
func (w *world) copied(kind corev1.SecretType, value string) func() error {
	return func() error {
		for _, project := range []string{"web", "data"} {
			s, err := w.client.CoreV1().Secrets(w.home(project)).Get(w.Context(), "registry-"+w.name,
				metav1.GetOptions{})
			if err != nil {
				return err
			}
			if s.Type != kind || len(s.Data) != 1 || string(s.Data["token"]) != value {
				return fmt.Errorf("the copy is a %s with %q", s.Type, s.Data)
			}
		}
		return nil
	}
}

func checkSecret(w *world) {
	shared := w.client.CoreV1().Secrets(Platform)
	before := w.secret(corev1.SecretTypeOpaque, "one")
	w.provisioned(func(s *v1.TenantSpec) { s.PullSecret = before.Name })
	require.NoError(w, w.copied(corev1.SecretTypeOpaque, "one")())
	patch := func(in, data string) {
		w.Helper()
		_, err := w.client.CoreV1().Secrets(in).Patch(w.Context(), before.Name, types.MergePatchType, []byte(data),
			metav1.PatchOptions{})
		require.NoError(w, err)
	}
	patch(Platform, `{"stringData":{"token":"two"}}`)
	w.Soon(w.copied(corev1.SecretTypeOpaque, "two"))
	patch(w.home("web"), `{"stringData":{"token":"mine","more":"x"}}`)
	w.Soon(w.copied(corev1.SecretTypeOpaque, "two"))
	require.NoError(w, shared.Delete(w.Context(), before.Name, metav1.DeleteOptions{}))
	w.Eventually(w.is(w.name, v1.ReasonSecretMissing))
	w.Eventually(func() error {
		_, err := w.client.CoreV1().Secrets(w.home("web")).Get(w.Context(), before.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the copy is still there: %w", err)
	})
	w.secret("example.com/token", "three")
	w.Eventually(w.is(w.name, v1.ReasonProvisioned))
	require.NoError(w, w.copied("example.com/token", "three")())

	// The type of a Secret cannot be changed, so that of a copy is another Secret.
	require.NoError(w, shared.Delete(w.Context(), before.Name, metav1.DeleteOptions{}))
	w.secret("example.com/other", "four")
	w.Eventually(w.copied("example.com/other", "four"))
	w.Eventually(w.is(w.name, v1.ReasonProvisioned))
	require.NoError(w, shared.Delete(w.Context(), before.Name, metav1.DeleteOptions{}))
}

func checkSecretMissing(w *world) {
	w.create(w.name, func(s *v1.TenantSpec) { s.PullSecret = "registry-" + w.name })
	w.Eventually(w.is(w.name, v1.ReasonSecretMissing))
	_, err := w.binding("web")
	require.NoError(w, err, "all else is there")
	s := w.secret(corev1.SecretTypeOpaque, "one")
	w.Eventually(w.is(w.name, v1.ReasonProvisioned))
	require.NoError(w, w.copied(corev1.SecretTypeOpaque, "one")())
	require.NoError(w, w.client.CoreV1().Secrets(Platform).Delete(w.Context(), s.Name, metav1.DeleteOptions{}))
}

// untouched says that an operator has put nothing into a namespace.
func (w *world) untouched(namespace string) {
	w.Helper()
	quotas, err := w.client.CoreV1().ResourceQuotas(namespace).List(w.Context(), metav1.ListOptions{})
	require.NoError(w, err)
	require.Empty(w, quotas.Items)
	bindings, err := w.client.RbacV1().RoleBindings(namespace).List(w.Context(), metav1.ListOptions{})
	require.NoError(w, err)
	require.Empty(w, bindings.Items)
}

func checkTaken(w *world) {
	theirs, err := w.client.CoreV1().Namespaces().Create(w.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: w.home("web")}}, metav1.CreateOptions{})
	require.NoError(w, err)
	w.create(w.name)
	w.Eventually(w.is(w.name, v1.ReasonNameTaken))
	w.Eventually(func() error {
		_, err := w.binding("data")
		return err
	})
	w.untouched(theirs.Name)
	is, err := w.namespace("web")
	require.NoError(w, err)
	require.Equal(w, theirs.Labels, is.Labels)
	require.NoError(w, w.client.CoreV1().Namespaces().Delete(w.Context(), theirs.Name, metav1.DeleteOptions{}))
	w.Eventually(w.is(w.name, v1.ReasonProvisioned))
}

// checkTwoTenants: the project b-c of Tenant a, and the project c of Tenant a-b.
func checkTwoTenants(w *world) {
	other := w.name + "-web"
	w.create(other, func(s *v1.TenantSpec) { s.Projects = []string{"c"} })
	w.Eventually(w.is(other, v1.ReasonProvisioned))
	first, err := w.namespace("web-c")
	require.NoError(w, err)
	w.create(w.name, func(s *v1.TenantSpec) { s.Projects = []string{"web-c"} })
	w.Eventually(w.is(w.name, v1.ReasonNameTaken))
	is, err := w.namespace("web-c")
	require.NoError(w, err)
	require.Equal(w, first.Labels, is.Labels)
	w.remove(other)
	w.Eventually(w.gone(other))
	w.Eventually(w.is(w.name, v1.ReasonProvisioned))
}

func checkRefused(w *world) {
	w.create(w.name, func(s *v1.TenantSpec) { s.Quota = quantities("pods", "-1") })
	w.Eventually(w.is(w.name, v1.ReasonRefused))
	w.Always(2*time.Second, w.is(w.name, v1.ReasonRefused))
	w.patch(w.name, `{"spec":{"quota":{"pods":"1"}}}`)
	w.Eventually(w.is(w.name, v1.ReasonProvisioned))
}

// checkFreed has a namespace that is in the way for so long that no failure is tried again within a second.
func checkFreed(w *world) {
	_, err := w.client.CoreV1().Namespaces().Create(w.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: w.home("web")}}, metav1.CreateOptions{})
	require.NoError(w, err)
	w.create(w.name)
	time.Sleep(30 * time.Minute)
	require.NoError(w, w.is(w.name, v1.ReasonNameTaken)())
	require.NoError(w, w.client.CoreV1().Namespaces().Delete(w.Context(), w.home("web"), metav1.DeleteOptions{}))
	w.Soon(w.is(w.name, v1.ReasonProvisioned))
}

func checkRefusedOnce(w *world) {
	w.create(w.name, func(s *v1.TenantSpec) { s.Quota = quantities("pods", "-1") })
	w.Eventually(w.is(w.name, v1.ReasonRefused))
	sent := func() (n int) {
		for _, r := range w.link.Requests() {
			if r.Resource.Resource == "resourcequotas" && r.Writes() {
				n++
			}
		}
		return n
	}
	before := sent()
	time.Sleep(30 * time.Minute)
	require.LessOrEqual(w, sent(), before+2, "one for each namespace, at most")
}

func checkCalm(w *world) {
	w.provisioned()
	w.patch(w.name, `{"metadata":{"labels":{"a":"b"}}}`)
	before, err := w.versions()
	require.NoError(w, err)
	w.Always(2*time.Second, func() error {
		is, err := w.versions()
		if err == nil && !apiequality.Semantic.DeepEqual(before, is) {
			err = fmt.Errorf("something was written: before %v, and now %v", before, is)
		}
		return err
	})
}

// checkDeletion has a binding that does not go, by a finalizer of somebody else.
func checkDeletion(w *world) {
	w.provisioned()
	bindings := w.client.RbacV1().RoleBindings(w.home("web"))
	_, err := bindings.Patch(w.Context(), v1.MembersName, types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":["example.com/audit"]}}`), metav1.PatchOptions{})
	require.NoError(w, err)
	w.remove(w.name)
	w.Eventually(w.is(w.name, v1.ReasonCleaningUp))
	w.Always(2*time.Second, func() error {
		for _, project := range []string{"web", "data"} {
			home, err := w.namespace(project)
			if err == nil && home.DeletionTimestamp != nil {
				err = errors.New("namespace " + home.Name + " goes although there is a binding")
			}
			if err != nil {
				return err
			}
		}
		_, err := w.client.NetworkingV1().NetworkPolicies(w.home("web")).Get(w.Context(), v1.QuotaName,
			metav1.GetOptions{})
		return err
	})
	_, err = bindings.Patch(w.Context(), v1.MembersName, types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	require.NoError(w, err)
	w.Eventually(w.gone(w.name))
	require.NoError(w, w.noNamespace("web")())
	require.NoError(w, w.noNamespace("data")())
}

// checkAlone lets the requests for one Tenant's namespace go wrong for half an hour. All others are served at once.
func checkAlone(w *world, fault reconciletest.Fault) {
	var theirs []string
	for i := range 5 {
		theirs = append(theirs, fmt.Sprint("other-", i))
		w.create(theirs[i])
	}
	for _, name := range theirs {
		w.Eventually(w.is(name, v1.ReasonProvisioned))
	}
	w.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
		if r.Namespace == w.home("web") {
			return fault
		}
		return nil
	})
	w.create(w.name)
	for i := range 6 {
		for _, name := range theirs {
			w.patch(name, fmt.Sprintf(`{"spec":{"quota":{"pods":"%d"}}}`, i+1))
			w.Soon(w.is(name, v1.ReasonProvisioned))
		}
		time.Sleep(5 * time.Minute)
	}
	require.Error(w, w.is(w.name, v1.ReasonProvisioned)())
	w.link.Inject(nil)
	time.Sleep(20 * time.Minute) // a key that has failed for long rests for up to 1,000 s
	require.NoError(w, w.is(w.name, v1.ReasonProvisioned)())
}

// checkDefinition is about the CustomResourceDefinition alone.
func checkDefinition(w *world) {
	for want, change := range map[string]func(*v1.TenantSpec){
		"spec.projects[0]": func(s *v1.TenantSpec) { s.Projects = []string{"Web"} },
		"spec.role":        func(s *v1.TenantSpec) { s.Role = "cluster-admin" },
		"spec.pullSecret":  func(s *v1.TenantSpec) { s.PullSecret = "A b" },
	} {
		err := w.tryCreate("a", change)
		require.True(w, apierrors.IsInvalid(err), "%s: %v", want, err)
		require.ErrorContains(w, err, want)
	}
	require.ErrorContains(w, w.tryCreate(strings.Repeat("a", 31)), "name too long for a namespace's")
	require.ErrorContains(w, w.tryCreate("a.b"), "no dots: namespaces have none")
}
