package objects_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/thermostat-go/thermostat/reconcile/objects"
)

var (
	ourRef     = *metav1.NewControllerRef(newSet("owner", "u"), setKind)
	anotherRef = *metav1.NewControllerRef(newSet("another", "x"), setKind)
	// Owners that do not control: us, and somebody else.
	ourInterest   = metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "owner", UID: "u"}
	theirInterest = metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Team", Name: "team", UID: "t"}
)

func wantedByLabel(p *corev1.Pod) bool { return p.Labels["wanted"] == "yes" }

// pod makes a candidate.
func pod(name string, wanted bool, owners ...metav1.OwnerReference) *corev1.Pod {
	p := newPod(name, "1", owners...)
	if wanted {
		p.Labels = map[string]string{"wanted": "yes"}
	}
	return p
}

func names(pods []*corev1.Pod) (names []string) {
	for _, p := range pods {
		names = append(names, p.Name)
	}
	return names
}

// claiming is an owner with its candidates, each on a desk of its own.
type claiming struct {
	sets  *desk[*appsv1.ReplicaSet]
	pods  *desk[*corev1.Pod]
	owner *appsv1.ReplicaSet
}

func newClaiming(t *testing.T, owner *appsv1.ReplicaSet, pods ...*corev1.Pod) *claiming {
	return &claiming{newDesk(t, owner), newDesk(t, pods...), owner}
}

func (c *claiming) claim(t *testing.T, candidates ...*corev1.Pod) ([]*corev1.Pod, error) {
	return objects.Claim(testCtx(t), objects.NewOwner(c.sets, c.owner, setKind), c.pods, slices.Values(candidates),
		wantedByLabel)
}

func TestVerdicts(t *testing.T) {
	orphanDying := pod("a", true)
	orphanDying.DeletionTimestamp = &dying
	elsewhere := pod("a", true)
	elsewhere.Namespace = "elsewhere"
	oursDying := pod("a", true, ourRef)
	oursDying.DeletionTimestamp = &dying

	type outcome struct {
		mine bool
		refs []metav1.OwnerReference // afterwards
	}
	keeps := func(p *corev1.Pod, mine bool) outcome { return outcome{mine, p.OwnerReferences} }
	for name, test := range map[string]struct {
		pod             *corev1.Pod
		alive, deleting outcome // by the state of the owner
	}{
		"ours, wanted": {pod("a", true, ourRef), keeps(pod("a", true, ourRef), true),
			keeps(pod("a", true, ourRef), true)},
		"ours, wanted, dying": {oursDying, keeps(oursDying, true), keeps(oursDying, true)},
		"ours, not wanted": {pod("a", false, theirInterest, ourRef),
			outcome{false, []metav1.OwnerReference{theirInterest}},
			keeps(pod("a", false, theirInterest, ourRef), false)},
		"ours alone, not wanted": {pod("a", false, ourRef), outcome{}, keeps(pod("a", false, ourRef), false)},
		"orphan, wanted":         {pod("a", true), outcome{true, []metav1.OwnerReference{ourRef}}, outcome{}},
		"orphan, wanted, with others' interest": {pod("a", true, theirInterest),
			outcome{true, []metav1.OwnerReference{theirInterest, ourRef}},
			keeps(pod("a", true, theirInterest), false)},
		"orphan, wanted, we are owner without control": {pod("a", true, ourInterest, theirInterest),
			outcome{true, []metav1.OwnerReference{ourRef, theirInterest}},
			keeps(pod("a", true, ourInterest, theirInterest), false)},
		"orphan, wanted, dying":     {orphanDying, outcome{}, outcome{}},
		"orphan, wanted, elsewhere": {elsewhere, outcome{}, outcome{}},
		"orphan, not wanted":        {pod("a", false), outcome{}, outcome{}},
		"another's, wanted": {pod("a", true, anotherRef), keeps(pod("a", true, anotherRef), false),
			keeps(pod("a", true, anotherRef), false)},
		"another's, not wanted": {pod("a", false, anotherRef), keeps(pod("a", false, anotherRef), false),
			keeps(pod("a", false, anotherRef), false)},
	} {
		for _, deleting := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, owner deleting %t", name, deleting), func(t *testing.T) {
				owner, want := newSet("owner", "u"), test.alive
				if deleting {
					owner.DeletionTimestamp, want = &dying, test.deleting
				}
				c := newClaiming(t, owner, clone(test.pod))
				candidate := c.pods.get("a")
				before := clone(candidate)
				mine, err := c.claim(t, candidate)
				require.NoError(t, err)
				require.Equal(t, want.mine, len(mine) == 1)
				now := c.pods.get("a")
				require.Equal(t, want.refs, now.OwnerReferences)
				if want.mine {
					require.Equal(t, now, mine[0])
				}
				require.Equal(t, before, candidate, "the cached object was changed")
				changed := now.ResourceVersion != before.ResourceVersion
				require.Equal(t, changed, len(c.pods.took()) > 0, "a write that changed nothing")
				require.Equal(t, changed && want.mine, len(c.sets.took()) > 0,
					"the owner is looked up if, and only if, something is adopted")
			})
		}
	}
}

func TestAnOwnerWithoutNamespaceAdoptsEverywhere(t *testing.T) {
	owner := newSet("owner", "u")
	owner.Namespace = ""
	c := newClaiming(t, owner, pod("a", true))
	mine, err := c.claim(t, c.pods.get("a"))
	require.NoError(t, err)
	require.Len(t, mine, 1)
}

func TestTheOwnerIsLookedUpOncePerClaim(t *testing.T) {
	c := newClaiming(t, newSet("owner", "u"), pod("a", true), pod("b", true), pod("c", true))
	for range 2 {
		mine, err := c.claim(t, pod("a", true), pod("b", true), pod("c", true))
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b", "c"}, names(mine))
		require.Equal(t, []string{"get owner"}, c.sets.took())
		for _, name := range names(mine) {
			c.pods.put(pod(name, true))
		}
	}
}

// TestTheDeadAdoptNobody: nothing is adopted when the server knows better than the cache, but releases go on.
func TestTheDeadAdoptNobody(t *testing.T) {
	for name, test := range map[string]struct {
		meanwhile func(*desk[*appsv1.ReplicaSet])
		gone      bool
	}{
		"gone":     {func(d *desk[*appsv1.ReplicaSet]) { d.remove("owner") }, true},
		"replaced": {func(d *desk[*appsv1.ReplicaSet]) { d.put(newSet("owner", "v")) }, true},
		"deleting": {func(d *desk[*appsv1.ReplicaSet]) {
			d.change("owner", func(rs *appsv1.ReplicaSet) { rs.DeletionTimestamp = &dying })
		}, false},
		"unknown": {func(d *desk[*appsv1.ReplicaSet]) {
			d.before = func(
				string) error {
				return errors.New("timeout")
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClaiming(t, newSet("owner", "u"), pod("a", true), pod("b", true), pod("c", false, ourRef),
				pod("d", true, ourRef))
			test.meanwhile(c.sets)
			mine, err := c.claim(t, c.pods.get("a"), c.pods.get("b"), c.pods.get("c"), c.pods.get("d"))
			require.ErrorContains(t, err, "ReplicaSet default/owner")
			require.Equal(t, test.gone, errors.Is(err, objects.ErrGone), err)
			require.Nil(t, mine)
			require.Equal(t, []string{"patch c"}, c.pods.took())
		})
	}
}

// TestACandidateThatIsNotWhatWasSeen changes it between the look and the claim.
func TestACandidateThatIsNotWhatWasSeen(t *testing.T) {
	become := func(change func(*corev1.Pod)) func(*claiming) {
		return func(c *claiming) { c.pods.change("a", change) }
	}
	for name, test := range map[string]struct {
		seen      *corev1.Pod
		meanwhile func(*claiming)
		fails     bool
	}{
		"adopt what is gone": {pod("a", true), func(c *claiming) { c.pods.remove("a") }, false},
		"adopt a namesake":   {pod("a", true), become(func(p *corev1.Pod) { p.UID = "2" }), true},
		"adopt what another has adopted": {pod("a", true),
			become(func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{anotherRef} }), true},
		"release what is gone": {pod("a", false, ourRef), func(c *claiming) { c.pods.remove("a") }, false},
		"release a namesake":   {pod("a", false, ourRef), become(func(p *corev1.Pod) { p.UID = "2" }), false},
		"release what has a new owner": {pod("a", false, ourRef),
			become(func(p *corev1.Pod) { p.OwnerReferences = append(p.OwnerReferences, theirInterest) }), false},
		"adopt, and the server is down": {pod("a", true),
			func(c *claiming) { c.pods.before = func(string) error { return errors.New("down") } }, true},
		"release, and the server is down": {pod("a", false, ourRef), func(c *claiming) {
			c.pods.before = func(string) error { return errors.New("down") }
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClaiming(t, newSet("owner", "u"), clone(test.seen), pod("b", true, ourRef))
			test.meanwhile(c)
			c.pods.mu.Lock()
			after := c.pods.version
			c.pods.mu.Unlock()
			mine, err := c.claim(t, test.seen, c.pods.get("b"))
			if test.fails {
				require.ErrorContains(t, err, "default/a")
				require.Nil(t, mine, "half of what one has is not to be acted on")
			} else {
				require.NoError(t, err)
				require.Equal(t, []string{"b"}, names(mine))
			}
			require.Equal(t, after, c.pods.version, "what was not seen was changed")
		})
	}
}

func TestEveryCandidateGetsItsTurnAndEveryFailureItsWord(t *testing.T) {
	c := newClaiming(t, newSet("owner", "u"), pod("a", true), pod("b", true), pod("c", true))
	for _, name := range []string{"a", "b"} {
		c.pods.change(name, func(p *corev1.Pod) { p.UID = "2" })
	}
	_, err := c.claim(t, pod("a", true), pod("b", true), pod("c", true))
	require.ErrorContains(t, err, "adopt default/a for ReplicaSet default/owner")
	require.ErrorContains(t, err, "adopt default/b for ReplicaSet default/owner")
	require.True(t, apierrors.IsInvalid(err), err)
	require.Equal(t, []metav1.OwnerReference{ourRef}, c.pods.get("c").OwnerReferences)
}

func TestAnAdoptionWhoseAnswerIsLost(t *testing.T) {
	c := newClaiming(t, newSet("owner", "u"), pod("a", true))
	c.pods.after = func(string) error { return errors.New("connection reset") }
	seen := c.pods.get("a")
	_, err := c.claim(t, seen)
	require.ErrorContains(t, err, "connection reset")
	c.pods.after = nil
	_, err = c.claim(t, seen)
	require.True(t, apierrors.IsInvalid(err),
		"the cache does not show the adoption yet, so it is tried again, and refused: %v", err)
	mine, err := c.claim(t, c.pods.get("a"))
	require.NoError(t, err)
	require.Len(t, mine, 1)
	require.Equal(t, []metav1.OwnerReference{ourRef}, c.pods.get("a").OwnerReferences)
}

func TestAReferenceIsTheCallersOwn(t *testing.T) {
	owner := objects.NewOwner(newDesk[*appsv1.ReplicaSet](t), newSet("owner", "u"), setKind)
	ref := owner.Reference()
	require.Equal(t, ourRef, ref)
	require.True(t, *ref.Controller && *ref.BlockOwnerDeletion)
	*ref.Controller = false
	require.Equal(t, ourRef, owner.Reference())
}

func TestClaimRefusesMistakes(t *testing.T) {
	sets, pods := newDesk[*appsv1.ReplicaSet](t), newDesk[*corev1.Pod](t)
	good := objects.NewOwner(sets, newSet("owner", "u"), setKind)
	none := slices.Values([]*corev1.Pod(nil))
	for want, test := range map[string]struct {
		owner      *objects.Owner
		client     objects.Patcher[*corev1.Pod]
		candidates iter.Seq[*corev1.Pod]
		wanted     func(*corev1.Pod) bool
	}{
		"the owner is nil": {nil, pods, none, wantedByLabel},
		"Claim: the owner is nil": {objects.NewOwner[*appsv1.ReplicaSet](sets, nil, setKind), pods, none,
			wantedByLabel},
		"the client of the owner is nil": {objects.NewOwner(nil, newSet("owner", "u"), setKind), pods, none,
			wantedByLabel},
		"kind": {objects.NewOwner(sets, newSet("owner", "u"),
			schema.GroupVersionKind{Kind: "ReplicaSet"}), pods, none, wantedByLabel},
		"has no UID": {objects.NewOwner(sets, newSet("owner", ""), setKind), pods, none,
			wantedByLabel},
		"Claim: the client is nil": {good, nil, none, wantedByLabel},
		"the candidates are nil":   {good, pods, nil, wantedByLabel},
		"the function is nil":      {good, pods, none, nil},
	} {
		_, err := objects.Claim(context.Background(), test.owner, test.client, test.candidates, test.wanted)
		require.ErrorContains(t, err, want)
	}
}
