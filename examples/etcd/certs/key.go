package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// Key is a private key as PEM. It is never printed.
type Key []byte

// Format implements fmt.Formatter for all verbs.
func (Key) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte("(private key)")) }

// Pair is a certificate with its key, each as PEM. Without a key it can be trusted, and does not sign.
type Pair struct {
	Cert []byte
	Key  Key
}

// skew is how far the clocks of those who check a certificate may be behind.
const skew = time.Minute

// sign makes a certificate with a new key. parent nil: it signs itself.
func sign(template *x509.Certificate, parent *Pair, now, end time.Time) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return Pair{}, err
	}
	template.SerialNumber = serial.Add(serial, big.NewInt(1))
	template.NotBefore, template.NotAfter = now.Add(-skew), end
	signer, signerKey := template, key
	if parent != nil {
		if signer, err = parse(parent.Cert); err != nil {
			return Pair{}, err
		}
		if signerKey, err = parent.Key.parse(); err != nil {
			return Pair{}, err
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer, &key.PublicKey, signerKey)
	if err != nil {
		return Pair{}, err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})}, nil
}

// parse reads the first certificate of a PEM file.
func parse(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("no certificate in PEM")
	}
	return x509.ParseCertificate(block.Bytes)
}

func (k Key) parse() (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(k)
	if block == nil || block.Type != "EC PRIVATE KEY" {
		return nil, errors.New("no EC private key in PEM")
	}
	return x509.ParseECPrivateKey(block.Bytes)
}

// Fingerprint is a short name of a certificate or a bundle.
func Fingerprint(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
