package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"maps"
	"net"
	"slices"
	"time"
)

// The names in leaf certificates. Members let only members in at their ports for peers.
const (
	MemberName = "etcd-member"
	ClientName = "client"
)

// Request says what a leaf certificate is for: a member has DNS names or addresses, and a client none.
type Request struct {
	DNS []string
	IPs []net.IP
}

func (r Request) member() bool { return len(r.DNS)+len(r.IPs) > 0 }

// The second certificate of a member, and its key. It has no names: etcd compares those of a peer's certificate with
// the address that the peer dials from, which DNS may not know yet.
const (
	DialCert, DialKey = "dial.crt", "dial.key"
)

// Leaf returns the content of a Secret with a leaf certificate, and whether it differs from the one that is there. The
// certificate is made anew if it is of another CA or for other names, or a third of its life is left; ca.crt always has
// the bundle.
func (a Authority) Leaf(is map[string][]byte, r Request, terms Terms, now time.Time) (map[string][]byte, bool, error) {
	end := now.Add(terms.Leaf)
	if ca := a.End(); ca.Before(end) {
		end = ca
	}
	if !a.stale(is, r, terms, now, end) {
		if bytes.Equal(is[BundleKey], a.Bundle()) {
			return is, false, nil
		}
		data := maps.Clone(is)
		data[BundleKey] = a.Bundle()
		return data, true, nil
	}
	data := map[string][]byte{BundleKey: a.Bundle()}
	template := func() *x509.Certificate {
		name := ClientName
		if r.member() {
			name = MemberName
		}
		return &x509.Certificate{Subject: pkix.Name{CommonName: name}, KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	}
	first := template()
	if r.member() {
		first.ExtKeyUsage = append(first.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		first.DNSNames, first.IPAddresses = r.DNS, r.IPs
		dial, err := sign(template(), &a.Signs, now, end)
		if err != nil {
			return nil, false, err
		}
		data[DialCert], data[DialKey] = dial.Cert, dial.Key
	}
	pair, err := sign(first, &a.Signs, now, end)
	if err != nil {
		return nil, false, err
	}
	data[CertKey], data[PrivateKey] = pair.Cert, pair.Key
	return data, true, nil
}

// stale reports whether a certificate that ends at end must take the place of the present one.
func (a Authority) stale(is map[string][]byte, r Request, terms Terms, now, end time.Time) bool {
	all := []string{CertKey}
	keys := []string{PrivateKey}
	if r.member() {
		all, keys = append(all, DialCert), append(keys, DialKey)
	}
	for i, key := range all {
		cert, err := parse(is[key])
		if err != nil || a.signed(cert) != nil {
			return true
		}
		if _, err := tls.X509KeyPair(is[key], is[keys[i]]); err != nil {
			return true
		}
		// A certificate that ends with its CA is not made again and again.
		if now.After(cert.NotAfter.Add(-terms.Leaf/3)) && end.Sub(cert.NotAfter) > terms.Leaf/10 {
			return true
		}
	}
	cert, _ := parse(is[CertKey])
	same := func(a, b net.IP) bool { return a.Equal(b) }
	return !slices.Equal(cert.DNSNames, r.DNS) || !slices.EqualFunc(cert.IPAddresses, r.IPs, same)
}

func (a Authority) signed(cert *x509.Certificate) error {
	ca, err := parse(a.Signs.Cert)
	if err != nil {
		return err
	}
	return cert.CheckSignatureFrom(ca)
}

// Signed reports whether the CA that signs has signed a certificate.
func (a Authority) Signed(cert *x509.Certificate) bool { return cert != nil && a.signed(cert) == nil }

// Config is the TLS configuration of a client with the content of its Secret.
func Config(data map[string][]byte) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(data[CertKey], data[PrivateKey])
	if err != nil {
		return nil, errors.New("keys " + CertKey + " and " + PrivateKey + " have no certificate with its key")
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(data[BundleKey]) {
		return nil, errors.New("key " + BundleKey + " has no certificate")
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, RootCAs: roots}, nil
}

// Addresses are the addresses that a leaf certificate is for. nil: there is no certificate, or it is for none.
func Addresses(data map[string][]byte) []net.IP {
	cert, err := parse(data[CertKey])
	if err != nil {
		return nil
	}
	return cert.IPAddresses
}

// End is when a leaf certificate ends. The zero time: there is none.
func End(data map[string][]byte) time.Time {
	cert, err := parse(data[CertKey])
	if err != nil {
		return time.Time{}
	}
	return cert.NotAfter
}

// Accepts reports whether someone who trusts a bundle lets in the certificates of a leaf Secret. The error says why
// not.
func Accepts(bundle []byte, leaf map[string][]byte, now time.Time) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	for _, key := range []string{CertKey, DialCert} {
		if leaf[key] == nil {
			continue
		}
		cert, err := parse(leaf[key])
		if err != nil {
			return err
		}
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
			return err
		}
	}
	return nil
}
