package plane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/thermostat-go/thermostat/internal/controlplane/supervisor"
)

const (
	probeEvery   = 50 * time.Millisecond
	probeTimeout = 2 * time.Second // of one attempt: a stopped process accepts connections and never answers
	readyTimeout = 2 * time.Minute // of all attempts: a machine that compiles at the same time is slow
)

// probes are the URLs that answer 200 once a component is ready.
func (p *Plane) probes(component string) []string {
	switch component {
	case Etcd:
		return []string{"http://etcd/health"} // the transport dials the socket
	case APIServer:
		return []string{p.server() + "/readyz"}
	case ControllerManager:
		return []string{
			fmt.Sprintf("https://127.0.0.1:%d/healthz", p.controllerManager.number),
			// A pod is admitted only in a namespace that has its default service account, and starts only with the root
			// CA.
			p.server() + "/api/v1/namespaces/default/serviceaccounts/default",
			p.server() + "/api/v1/namespaces/default/configmaps/kube-root-ca.crt",
		}
	default:
		return nil
	}
}

// Ready waits until a component is ready. It gives up as soon as the process has ended, and shows the end of its log.
func (p *Plane) Ready(ctx context.Context, component string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	client, err := p.probeClient()
	if err != nil {
		return err
	}
	for _, url := range p.probes(component) {
		for {
			err := probe(ctx, client, url)
			if err == nil {
				break
			}
			log := p.supervisor.Log(component)
			if running, status := p.supervisor.Running(component); !running {
				return fmt.Errorf("%s is not running (%s); the end of %s:\n%s", component, status, log,
					supervisor.Tail(log))
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s did not become ready (%w): %w; the end of %s:\n%s", component, ctx.Err(), err,
					log, supervisor.Tail(log))
			case <-time.After(probeEvery):
			}
		}
	}
	return nil
}

func probe(ctx context.Context, client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(response.Body, 2<<10))
		return fmt.Errorf("GET %s: %s: %s", url, response.Status, strings.TrimSpace(string(body)))
	}
	return nil
}

// probeClient is an administrator: before its default roles exist, the API server answers probes of administrators
// only.
func (p *Plane) probeClient() (*http.Client, error) {
	pki := filepath.Join(p.dir, "pki")
	certificate, err := tls.LoadX509KeyPair(filepath.Join(pki, "admin.crt"), filepath.Join(pki, "admin.key"))
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	ca, err := os.ReadFile(filepath.Join(pki, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == "etcd:80" {
			network, address = "unix", filepath.Join(p.dir, "etcd", "client")
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	return &http.Client{Transport: &http.Transport{
		DialContext:     dial,
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}},
		// A connection to a process that was killed or stopped says nothing about the next one.
		DisableKeepAlives: true,
	}}, nil
}
