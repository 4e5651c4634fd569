package inspect_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/inspect"
	testcluster "github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
	"github.com/thermostat-go/thermostat/reconcile/serve"
)

// TestPagesWithRealTokens asks for the pages under a name that is not this machine's, as service accounts of a real API
// server: one with the right to get them, one without it; and with a token that is none, and without one.
func TestPagesWithRealTokens(t *testing.T) {
	cluster := testcluster.Shared(t)
	namespace := cluster.Namespace(t)
	account := func(rules ...rbacv1.PolicyRule) *rest.Config {
		cfg, err := cluster.ClusterServiceAccount(t.Context(), namespace, rules...)
		require.NoError(t, err)
		return cfg
	}
	manager := account(
		rbacv1.PolicyRule{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"},
			Verbs: []string{"create"}},
		rbacv1.PolicyRule{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"},
			Verbs: []string{"create"}})
	operator := account(rbacv1.PolicyRule{NonResourceURLs: []string{"/inspect/*"}, Verbs: []string{"get"}})

	certified := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	defer certified.Close()
	server, err := serve.New(serve.Options{
		Address: "127.0.0.1:0", TLS: &tls.Config{Certificates: certified.TLS.Certificates}, AccessReviews: manager,
		Handlers: map[string]http.Handler{"/inspect/": inspect.Handler(inspect.Options{Actions: true})},
	})
	require.NoError(t, err)
	m, err := reconcile.NewManager(reconcile.ManagerOptions{
		Beside: map[string]func(context.Context) error{"nothing": func(context.Context) error { return nil }},
		Serve:  server.Run,
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
	})
	require.Eventually(t, func() bool { return server.Address() != "" }, time.Minute, time.Millisecond)
	roots := x509.NewCertPool()
	roots.AddCert(certified.Certificate())
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	defer client.CloseIdleConnections()
	ask := func(method, path, token string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, "https://"+server.Address()+path, nil)
		require.NoError(t, err)
		req.Host = "inspect.example"
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := client.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body)
	}
	for _, path := range []string{"/inspect/", "/inspect/index.json", "/inspect/bundle", "/inspect/style.css"} {
		code, body := ask(http.MethodGet, path, operator.BearerToken)
		require.Equal(t, http.StatusOK, code, body)
		code, body = ask(http.MethodGet, path, manager.BearerToken)
		require.Equal(t, http.StatusForbidden, code, body)
		code, body = ask(http.MethodGet, path, operator.BearerToken+"x")
		require.Equal(t, http.StatusUnauthorized, code, body)
		code, body = ask(http.MethodGet, path, "")
		require.Equal(t, http.StatusUnauthorized, code, body)
	}
	code, body := ask(http.MethodPost, "/inspect/action", operator.BearerToken)
	require.Equal(t, http.StatusForbidden, code, "get is not the right to act: %s", body)
}
