package plane

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/thermostat-go/thermostat/internal/controlplane/supervisor"
)

// script makes a control plane whose every component is the same shell script.
func script(t *testing.T, text string) *Plane {
	// Not t.TempDir: its path can be too long for a socket in it.
	dir, err := os.MkdirTemp("", "plane-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	binary := filepath.Join(dir, "script")
	require.NoError(t, os.WriteFile(binary, []byte("#!/bin/sh\n"+text), 0o700))
	s := supervisor.New(dir, func(supervisor.Message) {})
	t.Cleanup(s.Close)
	return New(dir, binary, s)
}

func TestUpShowsWhyAComponentEnded(t *testing.T) {
	p := script(t, "echo out of luck; exit 9")
	err := p.Up(t.Context(), nil)
	require.ErrorContains(t, err, "etcd is not running (exit status 9)")
	require.ErrorContains(t, err, "etcd.log:\nout of luck")
}

func TestUpWithABinaryThatCannotRun(t *testing.T) {
	p := script(t, "")
	p.binary = filepath.Join(p.dir, "missing")
	require.ErrorContains(t, p.Up(t.Context(), nil), "start etcd: ")
}

func TestUpTriesOtherPorts(t *testing.T) {
	p := script(t, "echo attempt >> attempts; echo 'listen tcp 127.0.0.1:1: bind: address already in use'; exit 1")
	require.ErrorContains(t, p.Up(t.Context(), nil), "address already in use")
	attempts, err := os.ReadFile(filepath.Join(p.dir, "attempts"))
	require.NoError(t, err)
	require.Equal(t, 3, strings.Count(string(attempts), "attempt"))
}

func TestUpEndsWithItsContext(t *testing.T) {
	p := script(t, "echo thinking; exec sleep 1000")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := p.Up(ctx, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "etcd did not become ready")
}

func TestReadyAsksTheComponent(t *testing.T) {
	p := script(t, "exec sleep 1000")
	_, err := p.issueAll()
	require.NoError(t, err)
	require.ErrorContains(t, p.ready(t.Context(), ""), "is not up")
	p.up = true
	require.ErrorContains(t, p.ready(t.Context(), "kubelet"), "there are etcd, apiserver, controller-manager")

	_, err = p.supervisor.Start(supervisor.Spec{Name: Etcd, Command: []string{p.binary}})
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(p.dir, "etcd"), 0o700))
	listener, err := net.Listen("unix", filepath.Join(p.dir, "etcd", "client"))
	require.NoError(t, err)
	asked := 0
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++ // one request after the other
		if r.URL.Path != "/health" || asked < 3 {
			http.Error(w, fmt.Sprintf("asked %d times", asked), http.StatusServiceUnavailable)
		}
	})}
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	require.NoError(t, p.ready(t.Context(), Etcd))
	require.Equal(t, 3, asked)
	require.NoError(t, server.Close())
	require.ErrorIs(t, <-served, http.ErrServerClosed)
}
