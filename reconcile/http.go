package reconcile

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"k8s.io/klog/v2"
)

// Address is where health checks and metrics are served, with the port that was chosen if HTTPAddress left it open;
// empty before Run.
func (m *Manager) Address() string {
	if a := m.address.Load(); a != nil {
		return *a
	}
	return ""
}

// startHTTP listens on HTTPAddress, if that is set, and adds the server to a group.
func (m *Manager) startHTTP(ctx context.Context, group *lifecycle.Group) error {
	if m.opts.HTTPAddress == "" {
		return nil
	}
	listener, err := listen(m.opts.HTTPAddress)
	if err != nil {
		return fmt.Errorf("ManagerOptions.HTTPAddress: %w", err)
	}
	address := listener.Addr().String()
	m.address.Store(&address)
	group.Go("HTTP server", func() { m.serve(ctx, listener) })
	return nil
}

// serve answers health checks until ctx ends.
func (m *Manager) serve(ctx context.Context, listener net.Listener) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		for _, c := range m.opts.Controllers {
			if err := c.alive(); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if missing := m.notReady(); missing != "" {
			http.Error(w, missing, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	if m.opts.Metrics != nil {
		mux.Handle("GET /metrics", m.opts.Metrics)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	var closing lifecycle.Group
	closing.Go("close", func() {
		<-ctx.Done()
		server.Close()
	})
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		klog.FromContext(ctx).Error(err, "The health checks are no longer served")
	}
	<-ctx.Done()
	closing.Wait(time.Second)
}

// notReady returns why this process is not ready, or "": a first list is missing, a cache does not follow its server,
// or the Elector reports that this process could not lead.
func (m *Manager) notReady() string {
	if missing := m.ready.Load(); missing != nil {
		return *missing
	}
	var ill []string
	for _, inf := range m.informers {
		if h := inf.Health(); h.State != informer.Live {
			ill = append(ill, fmt.Sprintf("informer %s: %s", inf.Name(), h))
		}
	}
	if e, ok := m.opts.Elector.(interface{ Ready() error }); ok {
		if err := e.Ready(); err != nil {
			ill = append(ill, err.Error())
		}
	}
	return strings.Join(ill, "\n")
}

// checkAddress finds the mistakes in an address that can be seen without listening on it.
func checkAddress(address string) error {
	if address == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	return err
}

// listen listens on the loopback interface if the address has no host: there is no authentication, so a wider audience
// must be asked for.
func listen(address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if host == "" {
		host = "localhost"
	}
	return net.Listen("tcp", net.JoinHostPort(host, port))
}
