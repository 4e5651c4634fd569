package certs

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Terms are the durations of certificates.
type Terms struct {
	// CA and Leaf are how long a certificate lives. Each is renewed when a third is left. Defaults: 5 years, 90 days.
	CA, Leaf time.Duration
	// Clients is how long clients take at most to read a changed Secret. Default: Leaf, since a client that does not
	// read it in that time loses its certificate anyhow.
	Clients time.Duration
}

// Complete returns the terms with their defaults, or an error that names what does not fit.
func (t Terms) Complete() (Terms, error) {
	if t.CA == 0 {
		t.CA = 5 * 365 * 24 * time.Hour
	}
	if t.Leaf == 0 {
		t.Leaf = 90 * 24 * time.Hour
	}
	if t.Clients == 0 {
		t.Clients = t.Leaf
	}
	switch {
	case t.Leaf < 10*time.Second:
		return t, fmt.Errorf("the life of leaf certificates is %v: at least 10s", t.Leaf)
	case t.Clients < 0:
		return t, fmt.Errorf("the time of clients is %v: it cannot be negative", t.Clients)
	case t.CA < 6*t.Leaf || t.CA < 9*t.Clients:
		return t, fmt.Errorf("the life of a CA is %v: at least 6 times that of leaf certificates, %v, and 9 times "+
			"the time of clients, %v", t.CA, t.Leaf, t.Clients)
	}
	return t, nil
}

// Step is a step of the rotation.
type Step string

// The steps, as the doc of the package has them.
const (
	Steady    Step = "Steady"
	Spreading Step = "Spreading"
	Replacing Step = "Replacing"
)

// Authority is the CA of a cluster. It is changed by [Authority.Next] only.
type Authority struct {
	Step   Step
	Since  time.Time // when the step began
	Number int       // of the CA that signs; the first one is 1
	Signs  Pair
	// Other is the second CA while Spreading, and the certificate of the first one, without its key, while Replacing.
	Other Pair
}

// Facts are what a step waits for.
type Facts struct {
	// Generation is the number of the CA that the spec asks for at least.
	Generation int
	// Trusting: each member has started with the bundle of [Authority.Bundle].
	Trusting bool
	// Renewed: each member serves a certificate of the CA that signs.
	Renewed bool
}

// New makes a CA with a number. The name is that of the cluster.
func New(name string, number int, terms Terms, now time.Time) (Authority, error) {
	pair, err := newCA(name, number, terms, now)
	return Authority{Step: Steady, Since: now, Number: number, Signs: pair}, err
}

func newCA(name string, number int, terms Terms, now time.Time) (Pair, error) {
	return sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: fmt.Sprintf("etcd %s CA %d", name, number)}, IsCA: true,
		BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}, nil, now, now.Add(terms.CA))
}

// Next returns the authority after the next step, and whether it is another one. The steps end when facts do not let
// them go on.
func (a Authority) Next(name string, facts Facts, terms Terms, now time.Time) (Authority, bool, error) {
	end := a.End()
	waited := !now.Before(a.Since.Add(terms.Clients)) || !now.Before(end) // an expired CA needs no patience
	var err error
	switch {
	case a.Step == Steady && (facts.Generation > a.Number || now.After(end.Add(-terms.CA/3))):
		next := a
		next.Step, next.Since = Spreading, now
		next.Other, err = newCA(name, a.Number+1, terms, now)
		return next, err == nil, err
	case a.Step == Spreading && facts.Trusting && waited:
		return Authority{Replacing, now, a.Number + 1, a.Other, Pair{Cert: a.Signs.Cert}}, true, nil
	case a.Step == Replacing && facts.Trusting && facts.Renewed && waited:
		return Authority{Steady, now, a.Number, a.Signs, Pair{}}, true, nil
	}
	return a, false, nil
}

// End is when the certificate of the CA that signs ends.
func (a Authority) End() time.Time {
	cert, err := parse(a.Signs.Cert)
	if err != nil {
		return time.Time{}
	}
	return cert.NotAfter
}

// Bundle is the PEM file of the CAs that are to be trusted. It is the same while Spreading and Replacing.
func (a Authority) Bundle() []byte {
	all := [][]byte{a.Signs.Cert}
	if len(a.Other.Cert) > 0 {
		all = append(all, a.Other.Cert)
	}
	slices.SortFunc(all, bytes.Compare)
	return bytes.Join(all, nil)
}

// Common reports whether two bundles have a CA in common that has not ended. Members that trust bundles without one do
// not accept each other.
func Common(a, b []byte, now time.Time) bool {
	known := map[string]bool{}
	for block, rest := pem.Decode(a); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		known[string(block.Bytes)] = err == nil && now.Before(cert.NotAfter)
	}
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if known[string(block.Bytes)] {
			return true
		}
	}
	return false
}

// The keys of the Secret of an Authority.
const (
	stepKey, sinceKey, numberKey = "step", "since", "number"
	otherCert, otherKey          = "other.crt", "other.key"
)

// The keys of all Secrets: a certificate, its key, and the CAs to trust.
const (
	CertKey, PrivateKey, BundleKey = "tls.crt", "tls.key", "ca.crt"
)

// Data is the content of the Secret.
func (a Authority) Data() map[string][]byte {
	data := map[string][]byte{stepKey: []byte(a.Step), sinceKey: []byte(a.Since.UTC().Format(time.RFC3339Nano)),
		numberKey: []byte(strconv.Itoa(a.Number)), CertKey: a.Signs.Cert, PrivateKey: a.Signs.Key}
	if len(a.Other.Cert) > 0 {
		data[otherCert] = a.Other.Cert
	}
	if len(a.Other.Key) > 0 {
		data[otherKey] = a.Other.Key
	}
	return data
}

// Parse reads the content of the Secret. An error names the key that is wrong, and nothing of what it has.
func Parse(data map[string][]byte) (Authority, error) {
	a := Authority{Step: Step(data[stepKey]), Signs: Pair{data[CertKey], data[PrivateKey]},
		Other: Pair{data[otherCert], data[otherKey]}}
	var err error
	if a.Since, err = time.Parse(time.RFC3339Nano, string(data[sinceKey])); err != nil {
		return a, errors.New("key " + sinceKey + " has no time")
	}
	if a.Number, err = strconv.Atoi(string(data[numberKey])); err != nil || a.Number < 1 {
		return a, errors.New("key " + numberKey + " has no number")
	}
	wants := map[string]bool{CertKey: true, PrivateKey: true}
	switch a.Step {
	case Steady:
	case Spreading:
		wants[otherCert], wants[otherKey] = true, true
	case Replacing:
		wants[otherCert] = true
	default:
		return a, errors.New("key " + stepKey + " has no step")
	}
	for _, key := range []string{CertKey, otherCert} {
		if _, err := parse(data[key]); wants[key] && err != nil {
			return a, errors.New("key " + key + " has no certificate")
		}
	}
	for _, key := range []string{PrivateKey, otherKey} {
		if _, err := Key(data[key]).parse(); wants[key] && err != nil {
			return a, errors.New("key " + key + " has no private key")
		}
	}
	return a, nil
}
