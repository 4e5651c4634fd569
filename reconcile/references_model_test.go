package reconcile_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// FuzzReferences plays histories of sites, of the Secrets that they name, and of faults, beside a naive model: a map of
// what each site names, and all that each Secret has ever been. No run sees a Secret, or none, that was not so at some
// time; and once the faults are over, the last run of each site has seen what is true, and the cache follows what is
// named and nothing else.
func FuzzReferences(f *testing.F) {
	for seed := range uint64(16) {
		random := rand.New(rand.NewPCG(seed, 63))
		script := make([]byte, 180)
		for i := range script {
			script[i] = byte(random.Uint32())
		}
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		// Most scripts cross the number of watches, up and down.
		var opts informer.Options[*corev1.Secret]
		if len(script) > 0 {
			opts.MaxWatches = int(script[0] % 4)
		}
		inRegistryWith(t, opts, func(r *registry) { (&naive{registry: r}).play(script[min(1, len(script)):]) })
	})
}

// naive is what the model knows.
type naive struct {
	*registry
	sites   map[string][]string // what each site names
	now     map[string]string   // the value of each Secret that exists
	been    map[string][]string // all that a run may have seen of a Secret since it began to be named
	version int
}

func (n *naive) names(secret string) bool {
	for _, named := range n.sites {
		if slices.Contains(named, secret) {
			return true
		}
	}
	return false
}

func (n *naive) saw(secret string) string {
	if value, exists := n.now[secret]; exists {
		return secret + "=" + value
	}
	return "no " + secret
}

func (n *naive) play(script []byte) {
	secrets, sites := []string{"a", "b", "c", "d"}, []string{"one", "two", "three"}
	n.sites, n.now, n.been = map[string][]string{}, map[string]string{}, map[string][]string{}
	last := map[string]string{}
	api := n.admin.CoreV1().Secrets("shop")
	for len(script) >= 3 {
		op, secret, site, mask := script[0]%15, secrets[script[1]%4], sites[script[1]/4%3], script[2]
		script = script[3:]
		switch op {
		case 0, 1, 2, 3: // another set of names
			var named []string
			for i, s := range secrets {
				if mask&(1<<i) != 0 {
					named = append(named, s)
					if !n.names(s) {
						n.been[s] = []string{n.saw(s)}
					}
				}
			}
			n.sites[site] = named
			n.site(site, strings.Join(named, ","))
		case 4, 5, 6:
			n.version++
			n.now[secret] = fmt.Sprint(n.version)
			n.been[secret] = append(n.been[secret], n.saw(secret))
			n.secret(secret, n.now[secret])
		case 7:
			if _, exists := n.now[secret]; exists {
				delete(n.now, secret)
				n.been[secret] = append(n.been[secret], n.saw(secret))
				require.NoError(n, api.Delete(n.Context(), secret, metav1.DeleteOptions{}))
			}
		case 8:
			n.fail(secret, reconciletest.AnswerWith(apierrors.NewForbidden(corev1.Resource("secrets"), secret,
				errors.New("by the test"))))
		case 9:
			n.fail(secret, reconciletest.Delay(time.Duration(mask)*100*time.Millisecond, 0))
		case 10:
			n.fail(secret, nil)
		case 11:
			n.link.CutWatches()
		case 12:
			n.link.DelayWatches("secrets", time.Duration(mask%4)*time.Second)
		case 13: // of the metadata of all
			n.fail("", []reconciletest.Fault{
				reconciletest.AnswerWith(apierrors.NewForbidden(corev1.Resource("secrets"), "",
					errors.New("by the test"))),
				reconciletest.AnswerWith(apierrors.NewServiceUnavailable("by the test")),
				reconciletest.Delay(time.Duration(mask)*100*time.Millisecond, 0),
			}[mask%3])
		case 14:
			n.fail("", nil)
		}
		if mask%2 == 0 {
			time.Sleep(time.Duration(mask) * 50 * time.Millisecond)
		}
		n.check(last, sites)
	}
	for _, s := range secrets {
		n.fail(s, nil)
	}
	n.fail("", nil)
	n.link.DelayWatches("secrets", 0)
	time.Sleep(5 * time.Minute)
	n.check(last, sites)
	followed := 0
	for _, s := range secrets {
		state := n.secrets.HealthIn("shop/" + s).State
		require.Equal(n, n.names(s), state == informer.Live, "%s is %q", s, state)
		if _, exists := n.now[s]; exists && n.names(s) {
			followed++
		}
	}
	require.Equal(n, followed, n.secrets.Len())
	for site, named := range n.sites {
		var want []string
		for _, s := range named {
			want = append(want, n.saw(s))
		}
		require.Equal(n, strings.Join(want, ","), last[site], "the last run of %s", site)
	}
}

// check looks at what the runs since the last check have seen.
func (n *naive) check(last map[string]string, sites []string) {
	synctest.Wait()
	for _, site := range sites {
		for _, run := range n.ran(site) {
			last[site] = run
			if run == "" {
				continue
			}
			for seen := range strings.SplitSeq(run, ",") {
				name, _, _ := strings.Cut(strings.TrimPrefix(seen, "no "), "=")
				require.Contains(n, n.been[name], seen, "a run of %s", site)
			}
		}
	}
}
