package leaderelection

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// TestReadyOnlyWithAccessToTheLease: a process that can never lead must not replace one that does.
func TestReadyOnlyWithAccessToTheLease(t *testing.T) {
	all := map[string]bool{"get": true, "create": true, "update": true, "watch": true}
	for name, c := range map[string]struct {
		denied map[string]bool
		held   bool
	}{
		"nothing is allowed":             {all, false},
		"nothing is allowed, a standby":  {all, true},
		"get is denied":                  {map[string]bool{"get": true}, true},
		"create is denied":               {map[string]bool{"create": true}, false},
		"update is denied":               {map[string]bool{"update": true}, false},
		"update is denied for a standby": {map[string]bool{"update": true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				var leader *run
				if c.held {
					leader = start(t, newCandidate(t, s.link("leader")), 0)
					settle(time.Second)
				}
				l := s.link("a")
				l.set(func(s *linkState) { s.deny = c.denied })
				e := newCandidate(t, l)
				require.ErrorContains(t, e.Ready(), "not known yet")
				a := start(t, e, 0)
				settle(time.Second)
				if name == "update is denied" {
					require.NoError(t, e.Ready(), "it leads")
					settle(2 * time.Second)
				}
				for range 3 {
					var denied *DeniedError
					require.ErrorAs(t, e.Ready(), &denied)
					if name == "update is denied" {
						break // the tenure ends of it
					}
					settle(10 * time.Minute)
				}
				tries := func() int {
					s.mu.Lock()
					defer s.mu.Unlock()
					return s.tries["a"]
				}
				before := tries()
				l.set(func(s *linkState) { s.deny = nil })
				settle(5 * time.Second)
				require.NoError(t, e.Ready())
				if c.held {
					require.Equal(t, before, tries(), "it has not tried to take it")
					require.True(t, leader.IsLeader())
					require.NoError(t, leader.stop())
					settle(time.Second)
				}
				require.True(t, a.IsLeader() || name == "update is denied", "it campaigns")
				_ = a.stop()
			})
		})
	}
}

func TestACandidateThatReachesNobodyIsNotReadyYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newServer().link("a")
		l.set(func(s *linkState) { s.refuse = true })
		a := start(t, newCandidate(t, l), 0)
		settle(time.Minute)
		require.ErrorContains(t, a.Ready(), "connection refused")
		l.set(func(s *linkState) { s.refuse = false })
		settle(5 * time.Second)
		require.NoError(t, a.Ready())
		require.NoError(t, a.stop())
	})
}

// TestARoleThatComesLate is the same before a real API server, which learns of roles from a watch.
func TestARoleThatComesLate(t *testing.T) {
	t.Parallel()
	cluster := testcluster.Shared(t)
	namespace := cluster.Namespace(t)
	cfg, err := cluster.ServiceAccount(t.Context(), namespace,
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}})
	require.NoError(t, err)
	e, err := New(Config{REST: cfg, Namespace: namespace, Name: "lock", SkipFirstWait: true})
	require.NoError(t, err)
	a := start(t, e, 0)
	var denied *DeniedError
	require.Eventually(t, func() bool { return e.failures.refused().err != nil }, time.Minute, 10*time.Millisecond)
	require.ErrorAs(t, e.Ready(), &denied)

	roles := cluster.Client().RbacV1().Roles(namespace)
	list, err := roles.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	list.Items[0].Rules = append(list.Items[0].Rules, rbacv1.PolicyRule{
		APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
		Verbs: []string{"get", "create", "update", "watch"},
	})
	_, err = roles.Update(t.Context(), &list.Items[0], metav1.UpdateOptions{})
	require.NoError(t, err)
	granted := time.Now()
	require.Eventually(t, a.IsLeader, time.Minute, 10*time.Millisecond)
	require.NoError(t, e.Ready())
	t.Logf("led %s after the Role was granted", time.Since(granted).Round(time.Millisecond))
	require.NoError(t, a.stop())
}
