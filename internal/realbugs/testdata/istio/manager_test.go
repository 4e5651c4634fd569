// Package check runs controllers of istiod, each by itself, with the client, the filter of namespaces and the order of
// its main: the defaults of the flags, no ConfigMap with a mesh, no leader election. Those that need the server of
// configurations for proxies are left out.
package check

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/set"

	"istio.io/istio/pilot/pkg/config/kube/gatewaycommon"
	"istio.io/istio/pilot/pkg/controllers/ipallocate"
	"istio.io/istio/pilot/pkg/controllers/untaint"
	"istio.io/istio/pilot/pkg/keycertbundle"
	namespaces "istio.io/istio/pilot/pkg/serviceregistry/kube/controller"
	"istio.io/istio/pkg/config/mesh/meshwatcher"
	"istio.io/istio/pkg/config/schema/collections"
	"istio.io/istio/pkg/kube"
	"istio.io/istio/pkg/kube/kclient"
	"istio.io/istio/pkg/kube/krt"
	"istio.io/istio/pkg/kube/namespace"
	"istio.io/istio/pkg/log"
	validation "istio.io/istio/pkg/webhooks/validation/controller"
	"istio.io/istio/pkg/webhooks/validation/server"

	"github.com/go-logr/logr"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cel"
)

const system = "istio-system"

func TestMain(m *testing.M) {
	for _, scope := range log.Scopes() {
		scope.SetOutputLevel(log.NoneLevel)
	}
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// start makes a controller, and returns what runs it.
type start func(client kube.Client, stop <-chan struct{}) (run func(stop <-chan struct{}))

// check runs Check on a controller. Nothing is switched off; no schedule begins after a minute. definitions are the
// custom resources that it reads: the file has many more, which would have to be read for each run.
func check(t *testing.T, start start, s reconciletest.Scenario, definitions ...string) {
	t.Helper()
	s.Run = func(ctx context.Context, cfg *rest.Config) error { return run(ctx, cfg, start) }
	s.Server.Kinds, s.Server.Rules, s.Server.Namespaces = builtin.Kinds(), cel.Rules{}, []string{"default", system}
	wanted := set.New(definitions...)
	for _, r := range defined() {
		if wanted.Has(r.Resource) {
			s.Server.Resources = append(s.Server.Resources, r)
		}
	}
	s.Limit = time.Minute
	reconciletest.Check(t, s)
}

// defined are the custom resources of Istio.
var defined = sync.OnceValue(func() (all []reconciletest.Resource) {
	files, err := filepath.Glob("crd/*.yaml")
	for _, file := range files {
		data, err2 := os.ReadFile(file)
		some, err3 := reconciletest.ReadCRDs(data)
		err, all = errors.Join(err, err2, err3), append(all, some...)
	}
	if err != nil {
		panic(err)
	}
	return all
})

func run(ctx context.Context, cfg *rest.Config, start start) error {
	stop := ctx.Done()
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst = 80, 160
	client, err := kube.NewClient(kube.NewClientConfigForRestConfig(cfg), "Kubernetes")
	if err != nil {
		return err
	}
	client = kube.EnableCrdWatcher(client)
	mesh := meshwatcher.NewCollection(krt.NewOptionsBuilder(stop, "", new(krt.DebugHandler)))
	mesh.AsCollection().WaitUntilSynced(stop)
	filter := namespace.NewDiscoveryNamespacesFilter(kclient.New[*corev1.Namespace](client),
		meshwatcher.ConfigAdapter(mesh), stop)
	client = kube.SetObjectFilter(client, filter)
	run := start(client, stop)
	client.RunAndWait(stop)
	run(stop)
	client.Shutdown()
	return nil
}

// authority is the certificate of the CA that signs for the mesh.
var authority = sync.OnceValue(func() []byte {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	is := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC),
		IsCA: true, BasicConstraintsValid: true}
	signed, err := x509.CreateCertificate(rand.Reader, is, is, key.Public(), key)
	if err != nil {
		panic(err)
	}
	var b bytes.Buffer
	if err := pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: signed}); err != nil {
		panic(err)
	}
	return b.Bytes()
})

// bundle has the certificate of the CA, as main reads it from a file.
func bundle() *keycertbundle.Watcher {
	w := keycertbundle.NewWatcher()
	w.SetAndNotify(nil, nil, authority())
	return w
}

func allocator(client kube.Client, stop <-chan struct{}) func(<-chan struct{}) {
	return ipallocate.NewIPAllocator(stop, client).Run
}

func untainter(client kube.Client, stop <-chan struct{}) func(<-chan struct{}) {
	return untaint.NewNodeUntainter(stop, client, "", system, new(krt.DebugHandler)).Run
}

func validator(client kube.Client, _ <-chan struct{}) func(<-chan struct{}) {
	return validation.NewValidatingWebhookController(client, "default", system, bundle()).Run
}

func roots(client kube.Client, _ <-chan struct{}) func(<-chan struct{}) {
	return namespaces.NewNamespaceController(client, bundle()).Run
}

func classes(client kube.Client, _ <-chan struct{}) func(<-chan struct{}) {
	return gatewaycommon.NewClassController(client).Run
}

// webhook is the handler of Istio that the validation asks whether it works.
func webhook() http.Handler {
	mux := http.NewServeMux()
	if _, err := server.New(server.Options{Schemas: collections.PilotGatewayAPI(), DomainSuffix: "cluster.local",
		Mux: mux}); err != nil {
		panic(err)
	}
	return mux
}
