package plane

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCertificates(t *testing.T) {
	p := New(t.TempDir(), "", nil)
	_, err := p.issueAll()
	require.NoError(t, err)
	pki := filepath.Join(p.dir, "pki")
	ca, err := os.ReadFile(filepath.Join(pki, "ca.crt"))
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(ca))
	load := func(name string) *x509.Certificate {
		pair, err := tls.LoadX509KeyPair(filepath.Join(pki, name+".crt"), filepath.Join(pki, name+".key"))
		require.NoError(t, err)
		return pair.Leaf
	}

	server := load("apiserver")
	for _, name := range []string{"127.0.0.1", "localhost", "kubernetes.default.svc", "10.96.0.1"} {
		_, err := server.Verify(x509.VerifyOptions{Roots: roots, DNSName: name})
		require.NoError(t, err, name)
	}
	client := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	_, err = server.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: client})
	require.Error(t, err, "a server's certificate is nobody's identity")

	admin := load("admin")
	_, err = admin.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: client})
	require.NoError(t, err)
	require.Equal(t, []string{"system:masters"}, admin.Subject.Organization)
	require.Equal(t, "system:kube-controller-manager", load("controller-manager").Subject.CommonName)

	entries, err := os.ReadDir(pki)
	require.NoError(t, err)
	for _, entry := range entries {
		info, err := entry.Info()
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode(), entry.Name())
	}
}
