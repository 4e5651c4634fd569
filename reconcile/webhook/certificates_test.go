package webhook_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/serve"
	"github.com/thermostat-go/thermostat/reconcile/webhook"
)

const host = "gadgets.system.svc"

// plane is an API server with a Secret, and with configurations that lead to the webhooks.
type plane struct {
	*reconciletest.Server
	before func(*http.Request) error // called without mu before each request; nil: nothing is

	unreachable atomic.Bool  // the Service leads nowhere
	slow        atomic.Int64 // how long each call of a webhook takes, a time.Duration

	mu sync.Mutex
	// Guarded by mu.
	version        int
	configurations map[string]map[string]any // by their paths
	bundles        []bundle                  // what the first one has had
}

// bundle is the caBundle of a configuration from a moment on.
type bundle struct {
	since time.Time
	pem   []byte
}

const (
	validating = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/gadgets"
	crd        = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.webhook.thermostat.example"
)

func newPlane(t *testing.T) *plane {
	client := map[string]any{"service": map[string]any{"namespace": "system", "name": "gadgets"}}
	return &plane{Server: reconciletest.NewServer(t, reconciletest.Options{Namespaces: []string{"system"}}),
		configurations: map[string]map[string]any{
			validating: {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
				"metadata": map[string]any{"name": "gadgets", "resourceVersion": "0"}, "webhooks": []any{
					map[string]any{"name": "a", "clientConfig": map[string]any{"service": client["service"]}},
					map[string]any{"name": "b", "clientConfig": map[string]any{"service": client["service"]}}}},
			crd: {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
				"metadata": map[string]any{"name": "gadgets.webhook.thermostat.example", "resourceVersion": "0"},
				"spec": map[string]any{"conversion": map[string]any{
					"webhook": map[string]any{"clientConfig": client}}}},
		}}
}

func (p *plane) config() *rest.Config {
	cfg := p.Config()
	through := cfg.Transport
	cfg.Transport = roundTripper(func(req *http.Request) (*http.Response, error) {
		if p.before != nil {
			if err := p.before(req); err != nil {
				return nil, err
			}
		}
		if strings.HasPrefix(req.URL.Path, "/apis/ad") || strings.HasPrefix(req.URL.Path, "/apis/apiext") {
			return p.configuration(req), nil
		}
		return through.RoundTrip(req)
	})
	return cfg
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// configuration serves GET and server-side apply of a configuration.
func (p *plane) configuration(req *http.Request) *http.Response {
	p.mu.Lock()
	defer p.mu.Unlock()
	code, answer := http.StatusOK, any(nil)
	is, ok := p.configurations[req.URL.Path]
	switch {
	case !ok:
		code, answer = http.StatusNotFound, metav1.Status{Status: "Failure", Code: 404, Reason: "NotFound"}
	case req.Method == http.MethodGet:
		answer = is
	default:
		var applied map[string]any
		if err := json.NewDecoder(req.Body).Decode(&applied); err != nil {
			panic(err)
		}
		metadata := is["metadata"].(map[string]any)
		if metadata["resourceVersion"] != applied["metadata"].(map[string]any)["resourceVersion"] {
			code, answer = http.StatusConflict, metav1.Status{Status: "Failure", Code: 409, Reason: "Conflict"}
			break
		}
		p.version++
		metadata["resourceVersion"] = strconv.Itoa(p.version)
		for name, client := range clientsOf(applied) {
			clientsOf(is)[name]["caBundle"] = client["caBundle"]
		}
		answer = is
		if req.URL.Path == validating {
			p.bundles = append(p.bundles, bundle{time.Now(), caBundle(is)})
		}
	}
	body, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)), Request: req}
}

// clientsOf are the clientConfigs of a configuration by the names of their webhooks.
func clientsOf(configuration map[string]any) map[string]map[string]any {
	clients := map[string]map[string]any{}
	if hooks, ok := configuration["webhooks"].([]any); ok {
		for _, hook := range hooks {
			hook := hook.(map[string]any)
			clients[hook["name"].(string)] = hook["clientConfig"].(map[string]any)
		}
		return clients
	}
	conversion := configuration["spec"].(map[string]any)["conversion"].(map[string]any)
	clients[""] = conversion["webhook"].(map[string]any)["clientConfig"].(map[string]any)
	return clients
}

// caBundle is what all webhooks of a configuration have; nil if they differ.
func caBundle(configuration map[string]any) (bundle []byte) {
	for _, client := range clientsOf(configuration) {
		text, _ := client["caBundle"].(string)
		pem, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			panic(err)
		}
		if bundle != nil && !bytes.Equal(bundle, pem) {
			return nil
		}
		bundle = pem
	}
	return bundle
}

// known are the bundles that an API server may have now, which notices a change within overlap.
func (p *plane) known(overlap time.Duration) (all [][]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, b := range p.bundles {
		if i == len(p.bundles)-1 || time.Since(p.bundles[i+1].since) < overlap {
			all = append(all, b.pem)
		}
	}
	return all
}

// listener accepts connections in memory.
type listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newListener() *listener {
	return &listener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 9443} }

func (l *listener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// replica is one process with the webhooks.
type replica struct {
	*webhook.Server
	*listener
	stop  func()
	ended chan error
}

// start runs a replica until stop is called.
func (p *plane) start(t *testing.T, l webhook.Lifetimes, hosts ...string) *replica {
	r := &replica{listener: newListener(), ended: make(chan error, 1)}
	var err error
	r.Server, err = webhook.New(webhook.Options{
		Handlers: map[string]*webhook.Handler{"/validate": webhook.Validate(v1,
			func(context.Context, *webhook.Admission[*Gadget]) (field.ErrorList, error) {
				time.Sleep(time.Duration(p.slow.Load()))
				return nil, nil
			})},
		Certificates: &webhook.Certificates{REST: p.config(), Lifetimes: l,
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				if p.unreachable.Load() {
					return nil, errors.New("no endpoints")
				}
				return r.dial(ctx, network, address)
			},
			Secret: types.NamespacedName{Namespace: "system", Name: "gadgets"}, Hosts: append(hosts, host),
			Validating: []string{"gadgets"}, CRDs: []string{"gadgets.webhook.thermostat.example"}},
		Listen: func(context.Context) (net.Listener, error) { return r.listener, nil },
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	r.stop = stop
	go func() { r.ended <- r.Run(ctx) }()
	return r
}

// call asks the webhook on a new connection, as an API server that trusts a bundle. The error says why there is no
// answer.
func (r *replica) call(t *testing.T, bundle []byte) error {
	return r.request(bundle, http.MethodPost, "/validate", review(t, admissionv1.Create, "{}", ""))
}

// probe asks as a kubelet does.
func (r *replica) probe(bundle []byte) error {
	return r.request(bundle, http.MethodGet, "/readyz", nil)
}

func (r *replica) request(bundle []byte, method, path string, body []byte) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	transport := &http.Transport{DialContext: r.dial, ForceAttemptHTTP2: true, DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: host}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequest(method, "https://"+host+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return err
}

// TestRotationOfReplicas runs three replicas over the life of several CAs. Their requests fail or take up to 20 s, and
// they are restarted. API servers notice changes as late as they may. No call fails.
func TestRotationOfReplicas(t *testing.T) {
	lifetimes := webhook.Lifetimes{CA: 2 * time.Hour, Leaf: 20 * time.Minute, Overlap: 2 * time.Minute}
	synctest.Test(t, func(t *testing.T) {
		p, random := newPlane(t), rand.New(rand.NewPCG(1, 0))
		var mu sync.Mutex // guards random
		draw := func(n int) int { mu.Lock(); defer mu.Unlock(); return random.IntN(n) }
		p.before = func(req *http.Request) error {
			switch draw(10) {
			case 0:
				return errors.New("connection reset")
			case 1:
				select {
				case <-time.After(time.Duration(draw(20_000)) * time.Millisecond):
				case <-req.Context().Done():
					return req.Context().Err()
				}
			}
			return nil
		}
		replicas := make([]*replica, 3)
		for i := range replicas {
			replicas[i] = p.start(t, lifetimes)
		}
		time.Sleep(2 * time.Minute)
		calls, cas := 0, map[string]bool{}
		for began := time.Now(); time.Since(began) < 4*time.Hour; time.Sleep(20 * time.Second) {
			i := draw(len(replicas))
			if draw(30) == 0 {
				replicas[i].stop()
				require.NoError(t, <-replicas[i].ended)
				replicas[i] = p.start(t, lifetimes)
			}
			if replicas[i].Callable() != nil {
				continue // its Service does not lead there
			}
			for _, known := range p.known(lifetimes.Overlap) {
				calls++
				cas[string(known)] = true
				require.NoError(t, replicas[i].call(t, known), "call %d, %s", calls, time.Since(began))
			}
		}
		t.Logf("%d calls with %d bundles", calls, len(cas))
		require.Greater(t, calls, 500)
		require.GreaterOrEqual(t, len(cas), 4)
		for _, r := range replicas {
			r.stop()
			require.NoError(t, <-r.ended)
		}
	})
}

// TestABundleIsRemoved from one of two webhooks, and from a CustomResourceDefinition: it is written again.
func TestABundleIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		r := p.start(t, webhook.Lifetimes{})
		time.Sleep(time.Minute)
		bundles := func() (hooks, definition []byte) {
			p.mu.Lock()
			defer p.mu.Unlock()
			return caBundle(p.configurations[validating]), caBundle(p.configurations[crd])
		}
		want, definition := bundles()
		require.NotEmpty(t, want)
		require.Equal(t, want, definition)
		for path, name := range map[string]string{validating: "b", crd: ""} {
			p.mu.Lock()
			p.version++
			p.configurations[path]["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(p.version)
			delete(clientsOf(p.configurations[path])[name], "caBundle")
			p.mu.Unlock()
		}
		hooks, definition := bundles()
		require.Empty(t, hooks)
		require.Empty(t, definition)
		require.NoError(t, r.Callable(), "the certificate is as good as before")
		time.Sleep(time.Minute)
		hooks, definition = bundles()
		require.Equal(t, want, hooks)
		require.Equal(t, want, definition)
		r.stop()
		require.NoError(t, <-r.ended)
	})
}

// TestASlowReplica: a configuration that has changed since a replica read it is left alone, because the change may be
// another replica's, with a newer CA.
func TestASlowReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		patches := 0
		p.before = func(req *http.Request) error {
			if req.Method != http.MethodPatch || req.URL.Path != validating {
				return nil
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			if patches++; patches == 1 {
				p.version++
				p.configurations[validating]["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(p.version)
			}
			return nil
		}
		r := p.start(t, webhook.Lifetimes{})
		time.Sleep(500 * time.Millisecond)
		require.Empty(t, p.known(time.Minute))
		require.ErrorContains(t, r.Callable(), "conflict")
		time.Sleep(time.Minute)
		require.Len(t, p.known(time.Minute), 1)
		require.Equal(t, 2, patches)
		require.NoError(t, r.Callable())
		r.stop()
		require.NoError(t, <-r.ended)
	})
}

// TestReady follows a replica: a configuration is missing, nothing leads to it, something does, its certificate ends.
func TestReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		definition := p.configurations[crd]
		delete(p.configurations, crd)
		p.unreachable.Store(true)
		r := p.start(t, webhook.Lifetimes{Leaf: time.Hour, CA: 24 * time.Hour})
		time.Sleep(10 * time.Second)
		const missing = "customresourcedefinitions gadgets.webhook.thermostat.example"
		require.ErrorContains(t, r.Callable(), missing)
		require.ErrorContains(t, r.Ready(nil), missing)
		require.EqualError(t, r.probe(p.known(0)[0]), "503 Service Unavailable: not ready\n")

		p.mu.Lock()
		p.configurations[crd] = definition
		p.mu.Unlock()
		time.Sleep(2 * time.Minute)
		require.NoError(t, r.Callable())
		require.NoError(t, r.probe(p.known(0)[0]))
		require.ErrorContains(t, r.Ready(nil), "gadgets.system.svc:443, where configurations lead to, cannot be")

		p.unreachable.Store(false)
		time.Sleep(2 * time.Minute)
		require.NoError(t, r.Ready(nil))

		// The Secret is damaged: what is served goes on, until its end.
		secrets, s := p.secret(t)
		s.Data["ca.key"] = []byte("damaged")
		_, err := secrets.Update(t.Context(), s, metav1.UpdateOptions{})
		require.NoError(t, err)
		time.Sleep(30 * time.Minute)
		require.NoError(t, r.Ready(nil))
		require.NoError(t, r.call(t, p.known(0)[0]))
		time.Sleep(30 * time.Minute)
		require.ErrorContains(t, r.Ready(nil), "the certificate ended at 2000-01-01T01:")

		require.NoError(t, secrets.Delete(t.Context(), s.Name, metav1.DeleteOptions{}))
		time.Sleep(5 * time.Minute)
		require.NoError(t, r.Ready(nil))
		require.NoError(t, r.call(t, p.known(0)[0]))
		r.stop()
		require.NoError(t, <-r.ended)
		require.ErrorContains(t, r.Ready(nil), "not served")
	})
}

// TestFiles: certificates that something else renews, such as cert-manager.
func TestFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		first := p.start(t, webhook.Lifetimes{Leaf: time.Hour, CA: 24 * time.Hour})
		time.Sleep(time.Minute)
		_, s := p.secret(t)
		first.stop()
		require.NoError(t, <-first.ended)

		dir := t.TempDir()
		for name, data := range s.Data {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
		}
		files, err := serve.TLSFromFiles(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
		require.NoError(t, err)
		r := &replica{listener: newListener(), ended: make(chan error, 1)}
		r.Server, err = webhook.New(webhook.Options{TLS: files,
			Handlers: map[string]*webhook.Handler{"/validate": webhook.Default(v1,
				func(context.Context, *webhook.Admission[*Gadget]) error { return nil })},
			Listen: func(context.Context) (net.Listener, error) { return r.listener, nil }})
		require.NoError(t, err)
		require.Error(t, r.Ready(nil))
		ctx, stop := context.WithCancel(t.Context())
		go func() { r.ended <- r.Run(ctx) }()
		time.Sleep(time.Second)
		require.NoError(t, r.Ready(nil))
		require.NoError(t, r.call(t, p.known(0)[0]))
		time.Sleep(time.Hour)
		require.ErrorContains(t, r.Ready(nil), "the certificate ended")
		require.ErrorContains(t, r.call(t, p.known(0)[0]), "certificate has expired")
		stop()
		require.NoError(t, <-r.ended)
	})
}

// TestTheEnd: a call that is under way has its time to end, and Run says so if it does not take it.
func TestTheEnd(t *testing.T) {
	for _, test := range []struct {
		took  time.Duration
		stuck bool
	}{{9 * time.Second, false}, {11 * time.Second, true}} {
		synctest.Test(t, func(t *testing.T) {
			p := newPlane(t)
			r := p.start(t, webhook.Lifetimes{})
			p.slow.Store(int64(test.took))
			time.Sleep(time.Minute)
			answered := make(chan error, 1)
			go func() { answered <- r.call(t, p.known(0)[0]) }()
			time.Sleep(time.Millisecond)
			r.stop()
			err := <-r.ended
			require.Equal(t, test.stuck, errors.Is(err, reconcile.ErrStuck), err)
			require.Equal(t, test.stuck, <-answered != nil)
			time.Sleep(time.Minute)
		})
	}
}

// secret returns the Secret with the certificates.
func (p *plane) secret(t *testing.T) (*informer.Resource[*corev1.Secret], *corev1.Secret) {
	secrets, err := informer.NewResource[*corev1.Secret](p.Config(), corev1.SchemeGroupVersion.WithResource("secrets"),
		informer.ResourceOptions{})
	require.NoError(t, err)
	secrets = secrets.In("system")
	s, err := secrets.Get(t.Context(), "gadgets", metav1.GetOptions{})
	require.NoError(t, err)
	return secrets, s
}
