// Package check runs the controller of Kubernetes' aggregator that asks the servers of others for their APIs, as
// kube-apiserver's main does. The network is one in memory, without TLS, on which each server answers.
package check

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apiserver"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/kube-aggregator/pkg/client/informers/externalversions"
	"k8s.io/kube-aggregator/pkg/controllers/status/metrics"
	"k8s.io/kube-aggregator/pkg/controllers/status/remote"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// network leads to the servers of others. It is a listener.
type network struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (n network) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case n.conns <- there:
		return here, nil
	case <-n.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (n network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n network) Close() error   { return nil }
func (n network) Addr() net.Addr { return &net.IPAddr{} }

// plain asks without TLS.
type plain struct{ remote.ServiceResolver }

func (p plain) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	u, err := p.ServiceResolver.ResolveEndpoint(namespace, name, port)
	if err == nil {
		u.Scheme = "http"
	}
	return u, err
}

// answers serves the network until it is closed.
func answers(n network) {
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
	})}
	server.SetKeepAlivesEnabled(false)
	_ = server.Serve(n) // it ends with an error
}

func run(ctx context.Context, cfg *rest.Config) error {
	client, err := clientset.NewForConfig(cfg)
	if err != nil {
		return err
	}
	core, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	services := externalversions.NewSharedInformerFactory(client, 5*time.Minute)
	factory := informers.NewSharedInformerFactory(core, 5*time.Minute)
	n := network{make(chan net.Conn), make(chan struct{})}
	c, err := remote.New(services.Apiregistration().V1().APIServices(), factory.Core().V1().Services(),
		factory.Discovery().V1().EndpointSlices(), client.ApiregistrationV1(),
		&transport.DialHolder{Dial: n.dial}, nil,
		plain{apiserver.NewClusterIPServiceResolver(factory.Core().V1().Services().Lister())}, metrics.New())
	if err != nil {
		return err
	}
	services.Start(ctx.Done())
	factory.Start(ctx.Done())
	var running sync.WaitGroup
	running.Go(func() { answers(n) })
	c.Run(5, ctx.Done())
	close(n.closed)
	running.Wait()
	services.Shutdown()
	factory.Shutdown()
	return nil
}

// TestRemoteAvailability: the servers of two APIs come after these, and the Service of one of them goes. Nothing is
// switched off; no schedule begins after a minute.
func TestRemoteAvailability(t *testing.T) {
	api := func(name string) string {
		return fmt.Sprintf(`
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.%[1]s.example.com}
spec:
  group: %[1]s.example.com
  version: v1
  groupPriorityMinimum: 1000
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {name: %[1]s, namespace: default, port: 443}
---
`, name)
	}
	service := func(name string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: default}
spec:
  selector: {app: server}
  ports: [{name: https, port: 443, targetPort: 8443}]
---
`, name)
	}
	const server = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: server, namespace: default}
spec:
  replicas: 1
  selector: {matchLabels: {app: server}}
  template:
    metadata: {labels: {app: server}}
    spec: {containers: [{name: c, image: "i:1", ports: [{containerPort: 8443}]}]}
---
`
	reconciletest.Check(t, reconciletest.Scenario{
		Run:    run,
		Server: reconciletest.Options{Kinds: builtin.Kinds()},
		World:  &reconciletest.World{},
		Limit:  time.Minute,
		Steps: append(reconciletest.ApplyYAML(api("metrics")+api("other"), server+service("metrics"), service("other")),
			reconciletest.Delete("services", "default", "metrics")),
		Settled: func(s *reconciletest.Server) error {
			var errs []error
			for name, should := range map[string]apiregistrationv1.ConditionStatus{
				"metrics": apiregistrationv1.ConditionFalse, "other": apiregistrationv1.ConditionTrue} {
				a, err := there[*apiregistrationv1.APIService](s, "apiservices", "", "v1."+name+".example.com")
				if err != nil {
					return err
				}
				if len(a.Status.Conditions) != 1 {
					return fmt.Errorf("%s has %d conditions", name, len(a.Status.Conditions))
				}
				errs = append(errs, want(name+" is available", a.Status.Conditions[0].Status, should))
			}
			return errors.Join(errs...)
		},
	})
}
