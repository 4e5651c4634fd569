package reconcile_test

import (
	"context"
	"log"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/leaderelection"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/serve"
)

// What an example needs and does not show.
var (
	controller *reconcile.Controller
	elector    *leaderelection.Elector
	metrics    http.Handler
)

// A graceful stop, and a way around it: the first Ctrl-C or SIGTERM ends ctx. No more keys are taken, calls of
// Reconcile that are under way may go on for DrainTimeout, and the Lease is released. From then on stop has undone
// NotifyContext, so a second signal ends the process at once, as it does in a program that handles no signals. Without
// AfterFunc it would be swallowed for as long as the Manager drains.
func Example_gracefulStop() {
	m, err := reconcile.NewManager(reconcile.ManagerOptions{
		Controllers: []*reconcile.Controller{controller}, Elector: elector,
		DrainTimeout: 20 * time.Second, // terminationGracePeriodSeconds of the pod is longer
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err = m.Run(ctx)
	stop()
	klog.Flush()
	if err != nil { // something else than ctx has ended it, or something did not end in time and is named
		log.Fatal(err)
	}
}

// Functions of a program that live with its controllers: one in every replica, one in the replica that leads.
func ExampleManagerOptions_runnables() {
	webhooks := &http.Server{Addr: ":9443"}
	m, err := reconcile.NewManager(reconcile.ManagerOptions{
		Controllers: []*reconcile.Controller{controller},
		Elector:     elector,
		Beside: map[string]func(context.Context) error{
			"webhooks": func(ctx context.Context) error {
				context.AfterFunc(ctx, func() { webhooks.Close() })
				return webhooks.ListenAndServeTLS("tls.crt", "tls.key")
			},
		},
		WhileLeading: map[string]func(context.Context) error{
			"report": func(ctx context.Context) error {
				every := time.NewTicker(time.Hour)
				defer every.Stop()
				for {
					select {
					case <-ctx.Done():
						return nil
					case <-every.C:
						klog.FromContext(ctx).Info("Still leading")
					}
				}
			},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := m.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// Health checks, metrics and profiles over HTTPS. Who reads metrics or profiles needs a token of a user who may get
// /metrics or /debug/pprof/; probes need none.
func Example_endpoints() {
	cfg, err := rest.InClusterConfig()
	if err != nil {
		log.Fatal(err)
	}
	config, err := serve.TLSFromFiles("/etc/tls/tls.crt", "/etc/tls/tls.key")
	if err != nil {
		log.Fatal(err)
	}
	server, err := serve.New(serve.Options{
		Address: "0.0.0.0:8443", TLS: config, AccessReviews: cfg,
		Metrics:  metrics,
		Handlers: map[string]http.Handler{"/debug/pprof/": http.HandlerFunc(pprof.Index)},
		ReadyChecks: map[string]func(*http.Request) error{
			"license": func(*http.Request) error { _, err := os.Stat("/etc/license"); return err },
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	m, err := reconcile.NewManager(reconcile.ManagerOptions{
		Controllers: []*reconcile.Controller{controller}, Serve: server.Run,
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := m.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// A logger of log/slog for one Manager. klog.SetSlogLogger would be the way to send every line of the process there.
func Example_logging() {
	server, err := reconciletest.Start(reconciletest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	cfg, err := reconcile.ClientConfig(server.Config())
	if err != nil {
		log.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps("default")
	_, err = client.Create(context.Background(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "memo"}},
		metav1.CreateOptions{})
	if err != nil {
		log.Fatal(err)
	}
	memos, err := informer.New[*corev1.ConfigMap](client, informer.Options[*corev1.ConfigMap]{})
	if err != nil {
		log.Fatal(err)
	}

	ctx, stop := context.WithCancel(context.Background())
	handler := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelInfo, // slog.LevelDebug shows each run of a key
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{} // it would be another one each time
			}
			return a
		},
	})
	c, err := reconcile.NewController("memos",
		reconcile.Func(func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
			klog.FromContext(ctx).Info("Looked at it", "entries", 0)
			stop()
			return reconcile.Result{}, nil
		}), reconcile.Options{})
	if err != nil {
		log.Fatal(err)
	}
	reconcile.For(c, memos)
	m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}})
	if err != nil {
		log.Fatal(err)
	}
	if err := m.Run(klog.NewContext(ctx, logr.FromSlogHandler(handler))); err != nil {
		log.Fatal(err)
	}
	// Output:
	// level=INFO msg="Looked at it" controller=memos key=default/memo entries=0
}
