package serve

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// TLSFromFiles returns a configuration for ManagerOptions.TLS, or any other server, with the certificate of two PEM
// files, such as tls.crt and tls.key of a mounted Secret. The files are read again at a handshake that comes 10 s or
// more after the last reading, so a renewed certificate needs no restart. If they cannot be read then, or do not
// belong together, as between two writes, the last good certificate stays in use, and the log says so. There is no
// goroutine. The error says what is wrong with the files now.
func TLSFromFiles(certFile, keyFile string) (*tls.Config, error) {
	files := &certificateFiles{cert: certFile, key: keyFile}
	if _, err := files.get(nil); err != nil {
		return nil, fmt.Errorf("TLSFromFiles: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: files.get}, nil
}

// readFilesEvery is how old a certificate may be before its files are read again.
const readFilesEvery = 10 * time.Second

// certificateFiles hold a certificate that may be renewed.
type certificateFiles struct {
	cert, key string // never changed
	log       lifecycle.LogLimit

	mu sync.Mutex
	// Guarded by mu. Files are read with mu held: handshakes wait for each other then.
	read    time.Time         // when
	content [sha256.Size]byte // of both files, when the certificate was made
	last    *tls.Certificate  // nil before the first one
}

// get returns the certificate for a handshake.
func (f *certificateFiles) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last != nil && time.Since(f.read) < readFilesEvery {
		return f.last, nil
	}
	f.read = time.Now()
	if err := f.reloadLocked(); err != nil {
		if f.last == nil {
			return nil, err
		}
		if dropped, ok := f.log.Allow(1); ok {
			klog.Background().Error(err, "The renewed certificate cannot be used; the last one stays in use",
				"notLogged", dropped)
		}
	}
	return f.last, nil
}

// reloadLocked reads the files, and makes the certificate if they have changed.
func (f *certificateFiles) reloadLocked() error {
	cert, err := os.ReadFile(f.cert)
	if err != nil {
		return err
	}
	key, err := os.ReadFile(f.key)
	if err != nil {
		return err
	}
	sums := sha256.Sum256(fmt.Appendf(nil, "%x %x", sha256.Sum256(cert), sha256.Sum256(key)))
	if f.last != nil && sums == f.content {
		return nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("%s and %s: %w", f.cert, f.key, err)
	}
	f.content, f.last = sums, &pair
	return nil
}
