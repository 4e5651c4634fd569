package check

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"time"
)

// material is what users bring along: a CA, a key, and a request that is signed by the key. It is made once, and is
// valid at the time of each run.
type material struct{ caCert, caKey, key, request []byte }

var made = sync.OnceValue(func() material {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	newKey := func() (*ecdsa.PrivateKey, []byte) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(err)
		der, err := x509.MarshalECPrivateKey(key)
		must(err)
		return key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	}
	var m material
	var ca, key *ecdsa.PrivateKey
	ca, m.caKey = newKey()
	key, m.key = newKey()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"},
		NotBefore: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &ca.PublicKey, ca)
	must(err)
	m.caCert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	der, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "a"}, DNSNames: []string{"a.example.com"}}, key)
	must(err)
	m.request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	return m
})

// secretOf is a Secret of the type kubernetes.io/tls.
func secretOf(namespace, name string, cert, key []byte) string {
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata: {name: %s, namespace: %s}
type: kubernetes.io/tls
data: {tls.crt: %q, tls.key: %q}
---
`, name, namespace, b64(cert), b64(key))
}

// issuerOf is an Issuer, or a ClusterIssuer, with what it issues by.
func issuerOf(kind, name, by string) string {
	namespace := ", namespace: default"
	if kind == "ClusterIssuer" {
		namespace = ""
	}
	return fmt.Sprintf(`
apiVersion: cert-manager.io/v1
kind: %s
metadata: {name: %s%s}
spec: {%s}
---
`, kind, name, namespace, by)
}

// requestOf is a CertificateRequest, with annotations.
func requestOf(name, issuer, annotations string) string {
	return fmt.Sprintf(`
apiVersion: cert-manager.io/v1
kind: CertificateRequest
metadata: {name: %s, namespace: default, annotations: {%s}}
spec:
  request: %q
  issuerRef: {name: %s, kind: Issuer, group: cert-manager.io}
---
`, name, annotations, base64.StdEncoding.EncodeToString(made().request), issuer)
}

// certificateOf is a Certificate for names.
func certificateOf(names ...string) string {
	return fmt.Sprintf(`
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: web, namespace: default}
spec:
  secretName: web
  dnsNames: [%s]
  privateKey: {algorithm: ECDSA}
  issuerRef: {name: ca}
---
`, strings.Join(names, ", "))
}
