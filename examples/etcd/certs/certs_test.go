package certs

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"math/rand"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	terms = Terms{CA: 900 * time.Hour, Leaf: 90 * time.Hour, Clients: 90 * time.Hour}
	one   = Request{DNS: []string{"a-1.a.default.svc", "localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}
)

func newAuthority(t *testing.T) Authority {
	a, err := New("default/a", 1, terms, begin)
	require.NoError(t, err)
	return a
}

func leaf(t *testing.T, a Authority, is map[string][]byte, r Request, now time.Time) (map[string][]byte, bool) {
	data, changed, err := a.Leaf(is, r, terms, now)
	require.NoError(t, err)
	return data, changed
}

// TestAHandshake is one between a client and a member.
func TestAHandshake(t *testing.T) {
	a, err := New("default/a", 1, terms, time.Now())
	require.NoError(t, err)
	member, _ := leaf(t, a, nil, one, time.Now())
	client, _ := leaf(t, a, nil, Request{}, time.Now())
	server, err := Config(member)
	require.NoError(t, err)
	server.ClientCAs, server.ClientAuth = server.RootCAs, tls.RequireAndVerifyClientCert
	dial, err := Config(client)
	require.NoError(t, err)
	for name, want := range map[string]bool{"a-1.a.default.svc": true, "127.0.0.1": true, "a-2.a.default.svc": false} {
		dial.ServerName = name
		left, right := net.Pipe()
		ended := make(chan error, 1)
		go func() {
			ended <- tls.Server(right, server).Handshake()
			right.Close()
		}()
		err := tls.Client(left, dial).Handshake()
		left.Close()
		require.Equal(t, want, err == nil, "%s: %v", name, err)
		require.Equal(t, want, <-ended == nil, name)
	}
}

// TestLeaf says when a leaf certificate is made anew.
func TestLeaf(t *testing.T) {
	a := newAuthority(t)
	first, changed := leaf(t, a, nil, one, begin)
	require.True(t, changed)
	two := one
	two.IPs = append(two.IPs, net.IPv4(10, 0, 0, 1))
	damaged := map[string][]byte{CertKey: first[CertKey], PrivateKey: first[DialKey], DialCert: first[DialCert],
		DialKey: first[DialKey]}
	next, _, err := a.Next("default/a", Facts{Generation: 2}, terms, begin)
	require.NoError(t, err)
	other := newAuthority(t)
	for what, test := range map[string]struct {
		by      Authority
		is      map[string][]byte
		request Request
		after   time.Duration
		anew    bool
		bundle  bool
	}{
		"fresh":                  {a, first, one, 0, false, false},
		"before a third is left": {a, first, one, 59 * time.Hour, false, false},
		"a third is left":        {a, first, one, 61 * time.Hour, true, false},
		"it has ended":           {a, first, one, 100 * time.Hour, true, false},
		"another address":        {a, first, two, 0, true, false},
		"another key":            {a, damaged, one, 0, true, true},
		"another CA":             {other, first, one, 0, true, true},
		"another bundle only":    {next, first, one, 0, false, true},
	} {
		t.Run(what, func(t *testing.T) {
			data, changed := leaf(t, test.by, test.is, test.request, begin.Add(test.after))
			require.Equal(t, test.anew, !bytes.Equal(data[CertKey], test.is[CertKey]))
			require.Equal(t, test.anew || test.bundle, changed)
			require.Equal(t, test.by.Bundle(), data[BundleKey])
			require.NoError(t, Accepts(data[BundleKey], data, begin.Add(test.after)))
		})
	}
}

// TestTheLeafOfACAThatEnds ends with it, and is not made again and again.
func TestTheLeafOfACAThatEnds(t *testing.T) {
	a := newAuthority(t)
	now := a.End().Add(-10 * time.Hour)
	last, _ := leaf(t, a, nil, one, now)
	cert, err := parse(last[CertKey])
	require.NoError(t, err)
	require.Equal(t, a.End(), cert.NotAfter)
	_, changed := leaf(t, a, last, one, now.Add(time.Hour))
	require.False(t, changed)
}

// TestKeysAreNotPrinted formats all that has keys.
func TestKeysAreNotPrinted(t *testing.T) {
	a := newAuthority(t)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q", "%d"} {
		for _, value := range []any{a, &a, a.Signs, a.Signs.Key} {
			text := fmt.Sprintf(verb, value)
			require.Contains(t, text, "(private key)", verb)
			require.NotContains(t, text, string(a.Signs.Key))
			require.NotContains(t, text, fmt.Sprintf("%x", []byte(a.Signs.Key)))
		}
	}
}

func TestParse(t *testing.T) {
	a, _, err := newAuthority(t).Next("default/a", Facts{Generation: 2}, terms, begin)
	require.NoError(t, err)
	again, err := Parse(a.Data())
	require.NoError(t, err)
	require.Equal(t, a, again)
	for key := range a.Data() {
		damaged := a.Data()
		damaged[key] = []byte("damaged")
		_, err := Parse(damaged)
		require.ErrorContains(t, err, "key "+key)
		require.NotContains(t, err.Error(), "damaged")
	}
}

func TestTerms(t *testing.T) {
	complete, err := Terms{}.Complete()
	require.NoError(t, err)
	require.Equal(t, Terms{CA: 43800 * time.Hour, Leaf: 2160 * time.Hour, Clients: 2160 * time.Hour}, complete)
	for _, wrong := range []Terms{{Leaf: time.Second}, {CA: time.Hour, Leaf: time.Hour}, {Clients: -1}} {
		_, err := wrong.Complete()
		require.Error(t, err)
	}
}

// peer is a member or a client in TestRotation: what it has on its disk, and what it trusts since its start.
type peer struct {
	secret, disk map[string][]byte
	trusts       []byte
	request      Request
	read         time.Time // when disk was the Secret
}

// history is one of TestRotation.
type history struct {
	*testing.T
	random     *rand.Rand
	now        time.Time
	authority  Authority
	generation int
	peers      []*peer // the first one is a client
	checked    map[string]time.Time
}

func newHistory(t *testing.T, seed int64) *history {
	h := &history{t, rand.New(rand.NewSource(seed)), begin, newAuthority(t), 1,
		[]*peer{{}, {request: one}, {request: one}, {request: one}}, map[string]time.Time{}}
	for _, p := range h.peers {
		p.secret, _ = leaf(t, h.authority, nil, p.request, h.now)
		p.disk, p.trusts, p.read = p.secret, h.authority.Bundle(), h.now
	}
	return h
}

// goOn lets up to 4 hours pass. Kubelets are up to 20 hours late, and clients almost as late as the terms allow.
func (h *history) goOn() {
	h.now = h.now.Add(time.Duration(h.random.Intn(4*60)) * time.Minute)
	for i, p := range h.peers {
		p.secret, _ = leaf(h.T, h.authority, p.secret, p.request, h.now)
		late := 20 * time.Hour
		if i == 0 {
			late = terms.Leaf/3 - 5*time.Hour
		}
		if h.random.Intn(8) == 0 || h.now.Sub(p.read) > late-4*time.Hour {
			p.disk, p.read = p.secret, h.now
			if i == 0 {
				p.trusts = p.disk[BundleKey]
			}
		}
	}
	p := h.peers[1+h.random.Intn(3)]
	if h.random.Intn(3) == 0 {
		p.trusts = h.authority.Bundle() // it starts again
	}
}

// step takes the next step, as an operator does that has just started.
func (h *history) step() (rotated bool) {
	facts := Facts{Generation: h.generation, Trusting: true, Renewed: true}
	for _, p := range h.peers[1:] {
		cert, err := parse(p.disk[CertKey])
		require.NoError(h, err)
		facts.Trusting = facts.Trusting && bytes.Equal(p.trusts, h.authority.Bundle())
		facts.Renewed = facts.Renewed && h.authority.Signed(cert)
	}
	next, changed, err := h.authority.Next("default/a", facts, terms, h.now)
	require.NoError(h, err)
	h.authority, err = Parse(next.Data())
	require.NoError(h, err)
	if next.Step == Steady && h.random.Intn(200) == 0 {
		h.generation = next.Number + 1
	}
	return changed && next.Step == Steady
}

// check has each one accept the certificates of each other one.
func (h *history) check() {
	for i, p := range h.peers {
		for j, other := range h.peers {
			pair := Fingerprint(p.trusts) + Fingerprint(other.disk[CertKey])
			if _, ok := h.checked[pair]; !ok {
				cert, err := parse(other.disk[CertKey])
				require.NoError(h, err)
				require.NoError(h, Accepts(p.trusts, other.disk, h.now), "after %v: %d does not accept %d, %s",
					h.now.Sub(begin), i, j, h.authority.Step)
				h.checked[pair] = cert.NotAfter
			}
			require.True(h, h.now.Before(h.checked[pair]), "after %v: the certificate of %d", h.now.Sub(begin), j)
		}
	}
}

// TestRotation draws histories in which files follow Secrets late, members start again at any time, and the spec asks
// for another CA now and then. At each time each member and each client accepts the certificates of all.
func TestRotation(t *testing.T) {
	for seed := range int64(2) {
		h, rotations := newHistory(t, seed), 0
		for h.now.Before(begin.Add(3000 * time.Hour)) {
			h.goOn()
			if h.step() {
				rotations++
			}
			h.check()
		}
		require.Greater(t, rotations, 2, "seed %d", seed)
	}
}
