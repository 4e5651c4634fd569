package serve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// certificate makes a certificate for this machine, signed by itself, and returns it and its key in PEM.
func certificate(t *testing.T, serial int64) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(serial),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	encoded, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})
}

// TestACertificateIsReadAgain: a renewed one is served within 10 s; while the files do not belong together, or are
// gone, the last one is.
func TestACertificateIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
		_, err := TLSFromFiles(certFile, keyFile)
		require.ErrorIs(t, err, os.ErrNotExist)
		write := func(file string, content []byte) { require.NoError(t, os.WriteFile(file, content, 0o600)) }
		cert, key := certificate(t, 1)
		write(certFile, cert)
		write(keyFile, []byte("no key"))
		_, err = TLSFromFiles(certFile, keyFile)
		require.ErrorContains(t, err, "TLSFromFiles: "+certFile+" and "+keyFile+": ")

		write(keyFile, key)
		config, err := TLSFromFiles(certFile, keyFile)
		require.NoError(t, err)
		serial := func() int64 {
			c, err := config.GetCertificate(&tls.ClientHelloInfo{})
			require.NoError(t, err)
			return c.Leaf.SerialNumber.Int64()
		}
		require.EqualValues(t, 1, serial())
		newer, newKey := certificate(t, 2)
		write(certFile, newer)
		require.EqualValues(t, 1, serial())
		time.Sleep(11 * time.Second)
		require.EqualValues(t, 1, serial(), "the key is still the old one's")
		write(keyFile, newKey)
		time.Sleep(11 * time.Second)
		require.EqualValues(t, 2, serial())
		require.NoError(t, os.Remove(keyFile))
		time.Sleep(11 * time.Second)
		require.EqualValues(t, 2, serial())
	})
}

func writeFile(t *testing.T, name string, content []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, content, 0o600))
	return file
}
