package webhook

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

// Lifetimes are the durations of certificates. The zero value is right for most.
type Lifetimes struct {
	// CA and Leaf are how long a certificate is valid. Each is renewed when a third is left. Zero: 5 years, 90 days.
	CA, Leaf time.Duration
	// Overlap is how long API servers have to notice a changed caBundle before a certificate of the new CA is used. A
	// replica looks at the Secret four times in that time, and at least once a minute. Zero: 10 minutes.
	Overlap time.Duration
}

// complete returns the lifetimes with their defaults.
func (l Lifetimes) complete() (Lifetimes, error) {
	l.CA = cmp.Or(l.CA, 5*365*24*time.Hour)
	l.Leaf = cmp.Or(l.Leaf, 90*24*time.Hour)
	l.Overlap = cmp.Or(l.Overlap, 10*time.Minute)
	switch {
	case l.Overlap <= 0 || l.Leaf < 3*l.Overlap:
		return l, fmt.Errorf("the Leaf is %s and the Overlap %s: a Leaf has to be at least three times the Overlap",
			l.Leaf, l.Overlap)
	case l.CA < 6*l.Leaf:
		return l, fmt.Errorf("the CA is %s and the Leaf %s: a CA has to be at least six times the Leaf", l.CA, l.Leaf)
	}
	return l, nil
}

// pause is how long a replica waits before it looks at the Secret again.
func (l Lifetimes) pause() time.Duration { return min(l.Overlap/4, time.Minute) }

// pair is a certificate with its private key, both PEM.
type pair struct{ cert, key []byte }

// authority is the content of the Secret: a leaf certificate and the CA that signs it. A CA is replaced in three steps:
//
//	next   a second CA is made. The first one signs on. The bundle has both.
//	signs  when the bundle has been in all configurations for Overlap, the second CA takes over and signs a new leaf.
//	       The bundle still has both.
//	drop   when no certificate of the first CA is valid any more, it leaves the bundle.
//
// Invariant: each leaf that a replica may use is signed by a CA in each bundle that an API server may have. A replica
// may be late by as much as the life of a leaf, and an API server by Overlap.
type authority struct {
	leaf  pair
	signs pair
	next  pair      // none, but in the first step
	last  []byte    // the certificate of the CA that signed before; nil, but in the second step
	since time.Time // when last signed no longer; zero without it
}

// Format keeps the keys out of logs and of the output of tests.
func (authority) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte("(private keys)")) }

// renew returns what the Secret is to have now, which is the same authority if nothing is to be done. spread is for how
// long all configurations have had the bundle of a.
func (a authority) renew(hosts []string, l Lifetimes, spread time.Duration, now time.Time) (authority, error) {
	ca, err := parseCertificate(a.signs.cert)
	if err != nil || !now.Before(ca.NotAfter) { // the first one; or nobody has looked at it for years
		signs, err := newCA(l, now)
		if err != nil {
			return a, err
		}
		leaf, err := newLeaf(signs, hosts, l, now)
		return authority{leaf: leaf, signs: signs}, err
	}
	if a.last != nil && !now.Before(a.since.Add(l.Leaf)) {
		a.last, a.since = nil, time.Time{}
	}
	switch {
	case a.next.cert == nil && a.last == nil && now.After(ca.NotAfter.Add(-l.CA/3)):
		if a.next, err = newCA(l, now); err != nil {
			return a, err
		}
	case a.next.cert != nil && spread >= l.Overlap:
		a = authority{leaf: a.leaf, signs: a.next, last: a.signs.cert, since: now}
	}
	if !a.leafIsGood(hosts, l, now) {
		a.leaf, err = newLeaf(a.signs, a.also(hosts, l, now), l, now)
	}
	return a, err
}

// also adds to hosts those of a leaf that need not be renewed for its age: they are of other replicas, which serve
// under other names while a new version is rolled out. Without that, each would replace the leaf of the others.
func (a authority) also(hosts []string, l Lifetimes, now time.Time) []string {
	leaf, err := parseCertificate(a.leaf.cert)
	if err != nil || now.After(leaf.NotAfter.Add(-l.Leaf/3)) {
		return hosts
	}
	hosts = append(slices.Clone(hosts), leaf.DNSNames...)
	for _, ip := range leaf.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// leafIsGood reports whether the leaf need not be replaced: it is of the CA that signs and for the hosts, and a third
// of its life is left, or it ends with its CA.
func (a authority) leafIsGood(hosts []string, l Lifetimes, now time.Time) bool {
	leaf, err1 := parseCertificate(a.leaf.cert)
	ca, err2 := parseCertificate(a.signs.cert)
	if _, err := tls.X509KeyPair(a.leaf.cert, a.leaf.key); errors.Join(err, err1, err2) != nil {
		return false
	}
	if leaf.CheckSignatureFrom(ca) != nil || !now.Before(leaf.NotAfter) {
		return false
	}
	for _, host := range hosts {
		if leaf.VerifyHostname(host) != nil {
			return false
		}
	}
	return now.Before(leaf.NotAfter.Add(-l.Leaf/3)) || leaf.NotAfter.Equal(ca.NotAfter)
}

// bundle is the caBundle of the configurations.
func (a authority) bundle() []byte {
	all := slices.DeleteFunc([][]byte{a.signs.cert, a.next.cert, a.last}, func(cert []byte) bool { return cert == nil })
	slices.SortFunc(all, bytes.Compare) // the same bytes while one CA takes over from the other
	return bytes.Join(all, nil)
}

// The keys of the Secret.
const (
	leafCertKey, leafPrivateKey   = "tls.crt", "tls.key"
	signsCertKey, signsPrivateKey = "ca.crt", "ca.key"
	nextCertKey, nextPrivateKey   = "next.crt", "next.key"
	lastCertKey, lastSinceKey     = "last.crt", "last.since"
)

// data is the content of the Secret.
func (a authority) data() map[string][]byte {
	data := map[string][]byte{leafCertKey: a.leaf.cert, leafPrivateKey: a.leaf.key, signsCertKey: a.signs.cert,
		signsPrivateKey: a.signs.key}
	if a.next.cert != nil {
		data[nextCertKey], data[nextPrivateKey] = a.next.cert, a.next.key
	}
	if a.last != nil {
		data[lastCertKey], data[lastSinceKey] = a.last, []byte(a.since.UTC().Format(time.RFC3339))
	}
	return data
}

// parseAuthority reads the content of the Secret; one without content is the zero authority. An error names the key
// that is wrong, and nothing of what it has.
func parseAuthority(data map[string][]byte) (authority, error) {
	if len(data) == 0 {
		return authority{}, nil
	}
	a := authority{leaf: pair{data[leafCertKey], data[leafPrivateKey]},
		signs: pair{data[signsCertKey], data[signsPrivateKey]}, next: pair{data[nextCertKey], data[nextPrivateKey]},
		last: data[lastCertKey]}
	var err error
	if a.last != nil {
		if a.since, err = time.Parse(time.RFC3339, string(data[lastSinceKey])); err != nil {
			return a, errors.New("key " + lastSinceKey + " has no time")
		}
		if _, err := parseCertificate(a.last); err != nil {
			return a, errors.New("key " + lastCertKey + " has no certificate")
		}
	}
	pairs := map[string]pair{leafCertKey: a.leaf, signsCertKey: a.signs}
	if a.next.cert != nil || a.next.key != nil {
		pairs[nextCertKey] = a.next
	}
	for key, p := range pairs {
		if _, err := tls.X509KeyPair(p.cert, p.key); err != nil {
			return a, errors.New("key " + key + " has no certificate with its private key")
		}
	}
	return a, nil
}

// skew is how far the clock of an API server may be behind.
const skew = time.Minute

func newCA(l Lifetimes, now time.Time) (pair, error) {
	return sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "webhook CA"}, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, NotAfter: now.Add(l.CA),
	}, nil, now)
}

// newLeaf makes a certificate that ends no later than its CA.
func newLeaf(ca pair, hosts []string, l Lifetimes, now time.Time) (pair, error) {
	parent, err := parseCertificate(ca.cert)
	if err != nil {
		return pair{}, err
	}
	leaf := &x509.Certificate{
		Subject: pkix.Name{CommonName: "webhook"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, NotAfter: now.Add(l.Leaf),
	}
	if leaf.NotAfter.After(parent.NotAfter) {
		leaf.NotAfter = parent.NotAfter
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, host)
		}
	}
	return sign(leaf, &ca, now)
}

// sign makes a certificate with a new key. Without a parent it signs itself.
func sign(template *x509.Certificate, parent *pair, now time.Time) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return pair{}, err
	}
	template.NotBefore = now.Add(-skew)
	signer, signerKey := template, any(key)
	if parent != nil {
		with, err := tls.X509KeyPair(parent.cert, parent.key)
		if err != nil {
			return pair{}, err
		}
		signer, signerKey = with.Leaf, with.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer, &key.PublicKey, signerKey)
	if err != nil {
		return pair{}, err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return pair{}, err
	}
	return pair{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})}, nil
}

// parseCertificate reads the first certificate of a PEM text.
func parseCertificate(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("no certificate in PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}
