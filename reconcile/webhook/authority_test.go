package webhook

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	hours = Lifetimes{CA: 900 * time.Hour, Leaf: 90 * time.Hour, Overlap: 10 * time.Hour}
	hosts = []string{"a.b.svc", "10.0.0.1"}
)

// renewed is renew, through the content of the Secret.
func renewed(t *testing.T, a authority, spread time.Duration, now time.Time) authority {
	next, err := a.renew(hosts, hours, spread, now)
	require.NoError(t, err)
	again, err := parseAuthority(next.data())
	require.NoError(t, err)
	require.Equal(t, next.data(), again.data())
	return again
}

// accepts reports whether an API server with a bundle accepts a leaf.
func accepts(t *testing.T, bundle, leaf []byte, now time.Time) error {
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(bundle))
	cert, err := parseCertificate(leaf)
	require.NoError(t, err)
	for _, host := range hosts {
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: now}); err != nil {
			return err
		}
	}
	return nil
}

// TestRotation lets 30 replicas and API servers be as late as they may be, for the life of four CAs: each replica is
// always accepted by each API server.
func TestRotation(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			now, a, ends := begin, renewed(t, authority{}, 0, begin), map[string]time.Time{}
			ends[string(a.leaf.cert)] = begin.Add(hours.Leaf)
			configured, since := a.bundle(), begin
			servers, read := make([][]byte, 10), make([]time.Time, 10)
			replicas, loaded := make([][]byte, 20), make([]time.Time, 20)
			for i := range servers {
				servers[i], read[i] = configured, now
			}
			for i := range replicas {
				replicas[i], loaded[i] = a.leaf.cert, now
			}
			cas := map[string]bool{}
			chained := map[string]error{} // by bundle and leaf; the dates are checked each time
			for now.Before(begin.Add(3000 * time.Hour)) {
				now = now.Add(time.Duration(random.IntN(240)) * time.Minute)
				var spread time.Duration
				if bytes.Equal(configured, a.bundle()) {
					spread = now.Sub(since)
				}
				a = renewed(t, a, spread, now)
				cas[string(a.signs.cert)] = true
				if _, ok := ends[string(a.leaf.cert)]; !ok {
					leaf, err := parseCertificate(a.leaf.cert)
					require.NoError(t, err)
					ends[string(a.leaf.cert)] = leaf.NotAfter
				}
				if !bytes.Equal(configured, a.bundle()) && random.IntN(5) == 0 {
					configured, since = a.bundle(), now // configurations may be written late, too
				}
				for i := range servers { // a server may be late by Overlap
					if random.IntN(4) == 0 || now.Sub(read[i]) > hours.Overlap-4*time.Hour {
						servers[i], read[i] = configured, now
					}
				}
				for i := range replicas { // a replica reads at last when its leaf is to be renewed
					if random.IntN(20) == 0 || now.Sub(loaded[i]) > hours.Leaf/4 {
						replicas[i], loaded[i] = a.leaf.cert, now
					}
				}
				for _, leaf := range replicas {
					require.True(t, now.Before(ends[string(leaf)]), now.Sub(begin))
				}
				for _, bundle := range servers {
					for _, leaf := range replicas {
						both := string(bundle) + string(leaf)
						if _, ok := chained[both]; !ok {
							chained[both] = accepts(t, bundle, leaf, now)
						}
						require.NoError(t, chained[both], now.Sub(begin))
					}
				}
			}
			require.GreaterOrEqual(t, len(cas), 4)
		})
	}
}

// TestRenew is about what is not in TestRotation: other hosts, a CA that has ended, a Secret that is damaged.
func TestRenew(t *testing.T) {
	a := renewed(t, authority{}, 0, begin)
	require.Equal(t, a.data(), renewed(t, a, time.Hour, begin.Add(59*time.Hour)).data())
	require.NotEqual(t, a.leaf.cert, renewed(t, a, 0, begin.Add(61*time.Hour)).leaf.cert)
	more, err := a.renew(append(hosts, "c.d.svc"), hours, 0, begin)
	require.NoError(t, err)
	require.NotEqual(t, a.leaf.cert, more.leaf.cert)
	require.Equal(t, a.signs.cert, more.signs.cert)
	again, err := more.renew(append(hosts, "e.f.svc"), hours, 0, begin)
	require.NoError(t, err)
	same, err := again.renew(append(hosts, "c.d.svc"), hours, 0, begin)
	require.NoError(t, err)
	require.Equal(t, again.data(), same.data(), "replicas of two versions do not replace each other's leaf")
	aged, err := again.renew(hosts, hours, 0, begin.Add(61*time.Hour))
	require.NoError(t, err)
	leaf, err := parseCertificate(aged.leaf.cert)
	require.NoError(t, err)
	require.Equal(t, []string{"a.b.svc"}, leaf.DNSNames)
	late := renewed(t, a, 0, begin.Add(901*time.Hour))
	require.NoError(t, accepts(t, late.bundle(), late.leaf.cert, begin.Add(901*time.Hour)))

	both := renewed(t, a, 0, begin.Add(601*time.Hour))
	require.NotNil(t, both.next.cert)
	require.Equal(t, a.signs, both.signs, "the first CA signs on while the bundle is not everywhere")
	after := renewed(t, both, hours.Overlap, begin.Add(620*time.Hour))
	require.Equal(t, both.next, after.signs)
	require.Equal(t, both.bundle(), after.bundle())
	for key := range after.data() {
		damaged := after.data()
		damaged[key] = []byte("damaged")
		_, err := parseAuthority(damaged)
		require.Error(t, err, key)
		require.NotContains(t, err.Error(), "damaged")
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
		require.NotContains(t, fmt.Sprintf(verb, a), fmt.Sprintf("%x", a.signs.key))
		require.NotContains(t, fmt.Sprintf(verb, a), "PRIVATE KEY-----")
	}
}
