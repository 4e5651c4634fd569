package processnode

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// kubelet is the server that the API server asks for the logs of pods. All nodes of a pool share one.
type kubelet struct {
	server *http.Server
	port   int32
}

// startKubelet serves on a port of 127.0.0.1 with a certificate that it has signed itself: the API server of a test
// cluster does not check it.
func startKubelet(handler http.Handler, group *lifecycle.Group) (*kubelet, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(10 * 365 * 24 * time.Hour), IPAddresses: []net.IP{net.ParseIP(hostIP)}}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", hostIP+":0")
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		return nil, err
	}
	k := &kubelet{port: int32(number), server: &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}},
			MinVersion:   tls.VersionTLS12,
		},
	}}
	group.Go("kubelet", func() { _ = k.server.ServeTLS(listener, "", "") }) // returns after close
	return k, nil
}

func (k *kubelet) close() { _ = k.server.Close() }

// logs is the part of a pool that serves the logs of pods.
type logs struct{ *Pool }

// ServeHTTP answers GET /containerLogs/NAMESPACE/POD/CONTAINER, as the API server asks for pods/log.
func (l logs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(parts) != 4 || parts[0] != "containerLogs" || r.Method != http.MethodGet {
		http.Error(w, "this node answers requests for logs only: not for exec, attach or port-forward",
			http.StatusNotImplemented)
		return
	}
	query := r.URL.Query()
	for _, name := range []string{"sinceSeconds", "sinceTime", "timestamps", "stream"} {
		if v := query.Get(name); v != "" && v != "false" && v != "All" {
			http.Error(w, "this node keeps no timestamps of log lines and one stream: it does not know "+name,
				http.StatusBadRequest)
			return
		}
	}
	previous := query.Get("previous") == "true"
	path, ended, err := l.logOf(types.NamespacedName{Namespace: parts[1], Name: parts[2]}, parts[3], previous)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	most := int64(1) << 62
	if limit, err := strconv.ParseInt(query.Get("limitBytes"), 10, 64); err == nil {
		most = limit
	}
	if query.Get("follow") != "true" {
		ended = nil
	}
	w.Header().Set("Content-Type", "text/plain")
	lines, err := strconv.Atoi(query.Get("tailLines"))
	if err != nil {
		lines = -1
	}
	copyLog(r.Context(), w, path, lines, most, ended)
}

// copyLog writes the last lines of a file, all if there are fewer than 0, and at most so many bytes. With a channel it
// goes on until the process has ended, which closes the channel.
func copyLog(ctx context.Context, w http.ResponseWriter, path string, lines int, most int64, ended <-chan struct{}) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	if content, err := io.ReadAll(f); err == nil && lines >= 0 {
		at := len(strings.TrimSuffix(string(content), "\n"))
		for at >= 0 && lines > 0 {
			at = strings.LastIndexByte(string(content[:at]), '\n')
			lines--
		}
		_, _ = f.Seek(int64(at+1), io.SeekStart)
	} else {
		_, _ = f.Seek(0, io.SeekStart)
	}
	for last := ended == nil; ; {
		n, err := io.CopyN(w, f, most)
		if most -= n; most == 0 || err != nil && !errors.Is(err, io.EOF) || last {
			return
		}
		if flusher, ok := w.(http.Flusher); ok {
			flusher.Flush()
		}
		select {
		case <-ctx.Done():
			return
		case <-ended:
			last = true
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// closed is for a process that has ended.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// logOf returns the log file of a container's latest process, or of the one before, and a channel that is closed when
// nothing more comes.
func (p *Pool) logOf(pod types.NamespacedName, name string, previous bool) (string, <-chan struct{}, error) {
	c, err := p.container(pod, name)
	if err != nil {
		return "", nil, err
	}
	c.pod.mu.Lock()
	defer c.pod.mu.Unlock()
	switch {
	case previous && c.logs[1] == "":
		return "", nil, fmt.Errorf("previous terminated container %q in pod %s not found", name, pod)
	case previous:
		return c.logs[1], closed, nil
	case c.logs[0] == "":
		return "", nil, fmt.Errorf("container %q in pod %s is waiting to start", name, pod)
	case c.process != nil:
		return c.logs[0], c.process.Ended(), nil
	default:
		return c.logs[0], closed, nil
	}
}

// consume returns the content of a file, and removes it.
func consume(path string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	_ = os.Remove(path) // it goes with the cluster otherwise
	return string(content)
}

// tail returns at most the last n bytes of a file.
func tail(path string, n int) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(content[max(0, len(content)-n):])
}
